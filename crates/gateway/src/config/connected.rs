//! Connected services: which can be, and how they are kept.

use sluice_core::Span;

use super::section::section;
use super::services::Accounts;

section! {
    /// Services people connect with `sluice connect`.
    Connected at "services" {
        /// Services by name, each with `adapter` (its own name unless said), `client_id` (as what we are registered with
        /// the provider) and, where it differs from the adapter's own: `api`, `authorize`, `token`, `revoke` (addresses)
        /// and `scopes`. An adapter of others is named by `program`, its whole path, and by `read`, a list of what it has
        /// to read beside it and the folders of the system (its interpreter, say); see adapters.md. The client's secret is not written here: `sluice connect NAME --client-secret-file FILE` puts it
        /// into the vault as `service/NAME/client`.
        connections: Accounts = Accounts::default(),
        /// How often the copy of a connected service is brought up to date.
        sync_every: Span = Span::from_mins(2); within Span::from_secs(10)..=Span::from_hours(24),
        /// Whether the copies of connected services are encrypted on the disk, each with a key of its own in the vault. It
        /// takes effect at the next start: copies that are there are turned into the wanted form then. See encryption.md.
        encrypt_copies: bool = false,
    }
}
