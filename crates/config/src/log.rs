//! Log settings: what the gateway writes to stderr.

use super::section::section;
use super::setting::choice;

section! {
    /// The log on stderr. It is separate from the audit log, which is always complete.
    Log at "log" {
        /// `text` for people, `json` for machines, `auto` for text in a terminal and JSON elsewhere.
        format: LogFormat = LogFormat::Auto,
        /// The level: `error`, `warn`, `info`, `debug` or `trace`.
        level: LogLevel = LogLevel::Info,
    }
}

choice! {
    /// The format of log lines.
    LogFormat {
        /// Text in a terminal, JSON elsewhere.
        Auto = "auto",
        /// One JSON object per line.
        Json = "json",
        /// Text for people.
        Text = "text",
    }
}

choice! {
    /// The log level.
    LogLevel {
        /// A person must act.
        Error = "error",
        /// Something is unusual.
        Warn = "warn",
        /// What happens.
        Info = "info",
        /// Why it happens.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}
