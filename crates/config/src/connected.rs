//! Connected services: which services can be connected, and how their replicas are kept.

use sluice_core::Millis;

use super::section::section;
use super::services::ConnectableServices;

section! {
    /// Services that people connect with `sluice connect`.
    Connected at "services" {
        /// Services by name, each with `adapter` (by default the name of the service), `client_id` (the id under which
        /// the gateway is registered with the provider) and, where it differs from the adapter's own: `api`,
        /// `authorize`, `token`, `revoke` (addresses) and `scopes`. A third-party adapter is configured with `program`,
        /// its absolute path, and `read`, a list of files and folders that it must read in addition to those of the
        /// system (for example its interpreter); see adapters.md. The client's secret is not written here:
        /// `sluice connect NAME --client-secret-file FILE` puts it into the vault as `service/NAME/client`.
        connections: ConnectableServices = ConnectableServices::default(),
        /// How often the replica of a connected service is updated.
        sync_every: Millis = Millis::from_mins(2); within Millis::from_secs(10)..=Millis::from_hours(24),
        /// Whether the replicas of connected services are encrypted on disk, each with its own key in the vault. A
        /// change takes effect at the next start: existing replicas are converted then. See encryption.md.
        encrypt_copies: bool = false,
    }
}
