//! What the gateway says on stderr.

use super::section::section;
use super::setting::choice;

section! {
    /// What the gateway says on stderr. The audit log is something else and always complete.
    Log at "log" {
        /// `text` for people, `json` for machines, `auto` for text on a terminal and JSON elsewhere.
        format: LogFormat = LogFormat::Auto,
        /// How much: `error`, `warn`, `info`, `debug` or `trace`.
        level: LogLevel = LogLevel::Info,
    }
}

choice! {
    /// How log lines look.
    LogFormat {
        /// Text on a terminal, JSON elsewhere.
        Auto = "auto",
        /// One object per line.
        Json = "json",
        /// For people.
        Text = "text",
    }
}

choice! {
    /// How much is logged.
    LogLevel {
        /// Someone must act.
        Error = "error",
        /// Something is odd.
        Warn = "warn",
        /// What happens.
        Info = "info",
        /// Why it happens.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}
