//! Formats without a vendor: private keys, logins in addresses, connection strings, headers, command lines.

use super::{FormatProof, SecretFormat, row};

#[rustfmt::skip] // A table: one row, one line.
pub(super) static FORMATS: &[SecretFormat] = &[
    row("pem.private_key", "private key", &["-----BEGIN", "----BEGIN", "---- BEGIN"], r"-{4,5} ?BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)? ?-{4,5}(?:\\[rn]|[\s\x22,+'])*[\w+/=:.;,\\ \r\n-]{24,}").loud(),
    row("putty.key", "PuTTY private key", &["PuTTY-User-Key-File-"], r"PuTTY-User-Key-File-\d:").proof(FormatProof::None).loud(),
    row("ssh.openssh_body", "OpenSSH private key without its frame", &["b3BlbnNzaC1rZXktdjE"], r"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=]{20,}").proof(FormatProof::None),
    row("pem.encoded", "private key in base64", &["LS0tLS1CRUdJTi", "tLS0tQkVHSU4g", "LS0tLUJFR0lOI"], r"(?:LS0tLS1CRUdJTi|tLS0tQkVHSU4g|LS0tLUJFR0lOI)[A-Za-z0-9+/=_-]{12,}").proof(FormatProof::Near(&["ubfjjvkfurs", "uftrqgqfuksu", "bsvzbvejfs0ve", "qukwqvrfie", "jjvkfurs"])),
    // Keys of unlisted vendors: a name, `_live_` or similar, and random characters.
    row("generic.prefixed", "key with a prefix", &["_live_", "_test_", "_prod_", "_secret_", "_pat_", "_api_", "_key_", "_sk_", "_token_"], r"[A-Za-z][A-Za-z0-9]{1,14}_(?:live|test|prod|secret|pat|api|key|sk|token)_[A-Za-z0-9]{20,}").back(16).proof(FormatProof::Random),
    row("header.basic", "basic authentication", &["Basic "], r"Basic [A-Za-z0-9+/]{8,}={0,2}").proof(FormatProof::Pair),
    row("header.token", "authorization header", &["Authorization", "authorization", "AUTHORIZATION"], r#"(?i:authorization)(?:\\?["'])?\s{0,2}[:=,]\s{0,2}(?:\\?["'])?(?i:token|apikey|api-key|key|digest|negotiate|hmac)[ =][\w.~+/=-]{16,}"#),
    row("header.private", "private header", &["X-Api-Key", "X-API-Key", "x-api-key", "X-API-KEY", "X-Auth-Token", "x-auth-token", "PRIVATE-TOKEN", "Private-Token", "X-Vault-Token", "JOB-TOKEN", "X-Amz-Security-Token", "Ocp-Apim-Subscription-Key", "X-JFrog-Art-Api", "X-Figma-Token", "X-Shopify-Access-Token", "X-Auth-Key", "X-Gitlab-Token"], r#"(?i:x-api-key|x-jfrog-art-api|x-figma-token|x-shopify-access-token|x-auth-key|x-gitlab-token|x-auth-token|private-token|x-vault-token|job-token|x-amz-security-token|ocp-apim-subscription-key)(?:\\?["'])?\s{0,2}[:=,]\s{0,2}(?:\\?["'])?[\w.~+/=-]{12,}"#),
    row("header.cookie", "session cookie", &["ookie: ", "ookie:"], r"ookie:\s?[^\n]{0,200}?(?i:sess(?:ion)?(?:_?id)?|sid|auth|token|jwt)=[\w.%+/=-]{20,}").proof(FormatProof::Random),
    row("curl.user", "login on a curl command line", &["curl"], r#"curl(?:\.exe)?\s[^\n]{0,400}?(?:-u|--user|--proxy-user|-U)[ =]{0,3}(?:\\?["'])?[^\s:"'$<{\\]{0,64}:(?:\\?["'])?[^\s"'$<{\\]{3,100}"#).proof(FormatProof::None).loud(),
    row("psexec.password", "password of a PsExec command line", &["psexec", "PsExec", "PSEXEC", "psExec"], r"(?i:psexec)[^\n]{0,120}? -u \S+ -p [^\s$<{]{3,60}").proof(FormatProof::None).loud(),
    row("command.login", "docker login with a password", &["docker login", "podman login", "helm registry login", "az login", "oc login", "mysql ", "mysqldump ", "sshpass", "ldapsearch", "mongo ", "redis-cli"], r#"(?:(?:docker|podman|az|oc|helm registry) login[^\n]{0,160}?(?:-p|--password|--token)[ =](?:\\?["'])?[^\s"'$<{-][^\s"'$<{]{5,}|mysql(?:dump)? [^\n]{0,120}?-p[^\s$<{"'-][^\s$<{"']{4,}|sshpass -p ?["']?[^\s$<{"']{4,}|ldapsearch [^\n]{0,120}?-w ?["']?[^\s$<{"']{4,}|mongo [^\n]{0,120}?-p ["']?[^\s$<{"']{4,}|redis-cli [^\n]{0,120}?-a ["']?[^\s$<{"']{6,})"#).loud(),
    row("netrc.login", "login of a netrc file", &["machine "], r"machine \S+\s+login \S+\s+password \S{3,}").loud(),
    row("net.credential", "login in .NET code", &["NetworkCredential(", "DirectoryEntry(", "ConvertTo-SecureString", "PSCredential"], r#"(?:NetworkCredential|DirectoryEntry)\(\s*(?:@?"[^"\n]*",\s*){1,2}@?"[^"\s]{3,}"|ConvertTo-SecureString\s+(?:-String\s+)?["'][^"'$\n]{4,}["']"#).proof(FormatProof::None).loud(),
    row("django.key", "Django secret key", &["SECRET_KEY"], r#"SECRET_KEY["'\]]{0,2}\s{0,4}[:=]\s{0,4}[rb]?["'][^"'\n]{24,100}["']"#),
    row("rails.key", "Rails secret base", &["secret_key_base", "SECRET_KEY_BASE", "RAILS_MASTER_KEY"], r"(?i:secret_key_base|rails_master_key)\W{1,6}[0-9a-f]{32,128}"),
    row("laravel.key", "Laravel application key", &["APP_KEY"], r"APP_KEY\s?=\s?.?base64:[A-Za-z0-9+/]{42,44}=?"),
    row("hash.crypt", "password hash", &["$2a$", "$2b$", "$2y$", "$6$", "$5$", "$1$", "$apr1$", "$argon2", "$y$", "{SSHA}", "pbkdf2_sha256$"], r"(?:\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}|\$[156]\$(?:rounds=\d+\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{22,86}|\$apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}|\$argon2(?:id|i|d)\$v=\d+\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]{8,}\$[A-Za-z0-9+/]{20,}|\$y\$[./A-Za-z0-9]+\$[./A-Za-z0-9]{10,}\$[./A-Za-z0-9]{43}|\{SSHA\}[A-Za-z0-9+/]{28,}={0,2}|pbkdf2_sha256\$\d+\$\w+\$[A-Za-z0-9+/]{43}=)").proof(FormatProof::None),
    row("seed.words", "seed words", &["seed phrase", "Seed phrase", "SEED PHRASE", "mnemonic", "Mnemonic", "MNEMONIC", "recovery phrase", "Recovery phrase", "seed_phrase", "secret recovery"], r#"(?i:seed[ _]phrase|mnemonic|recovery phrase)(?: (?:is|are))?\W{1,6}(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8}\b"#).proof(FormatProof::None).loud(),
    row("wifi.code", "password of a wireless network", &["WIFI:"], r"WIFI:(?:[TSHR]:[^;\s]{0,64};){1,4}P:[^;\s]{6,64};").proof(FormatProof::None).loud(),
    row("otp.seed", "seed of one-time passwords", &["otpauth://"], r"otpauth://(?:totp|hotp)/[^\s\x22']{0,200}secret=[A-Z2-7a-z]{16,}").proof(FormatProof::None),
    // Internal data: fixed paths and terms.
    row("internal.path", "internal path", &["/data/.openclaw", "memory/owner/"], r"/data/\.openclaw|memory/owner/").proof(FormatProof::None).loud(),
    row("internal.term", "internal term", &["SOUL.md", "MEMORY.md", "openclaw.json"], r"SOUL\.md|MEMORY\.md|openclaw\.json").proof(FormatProof::None).loud(),
];
