//! Tests of the configuration as a whole.

use sluice_core::AgentName;
use sluice_core::batch::SlidingWindow;

use super::*;

/// A folder with a `sluice.yaml`.
struct ConfigTestFolder {
    folder: tempfile::TempDir,
    env: Vec<(String, String)>,
    around: ConfigContext,
}

impl ConfigTestFolder {
    fn new(yaml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), yaml).unwrap();
        let around = ConfigContext { here: "/here".into(), host: Some("gate-1".into()), flags: Vec::new() };
        Self { folder, env: Vec::new(), around }
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    fn flag(mut self, name: &'static str, key: &'static str, value: &str) -> Self {
        self.around.flags.push(CommandLineFlag { name, key, value: value.into() });
        self
    }

    fn load(&self) -> Result<(Config, ConfigOrigins), ConfigErrors> {
        Config::load(Some(&self.folder.path().join(FILE)), &self.env, &self.around)
    }

    fn good(&self) -> Config {
        self.load().unwrap_or_else(|errors| panic!("{errors}")).0
    }

    /// The error text, without the folder.
    fn said(&self) -> String {
        let said = self.load().expect_err("it should be refused").to_string();
        said.replace(&format!("{}/", self.folder.path().display()), "")
    }

    fn codes(&self) -> Vec<&'static str> {
        self.load().map_or_else(|errors| errors.faults.iter().map(|fault| fault.code).collect(), |_| Vec::new())
    }
}

fn service(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

#[test]
fn without_a_file_everything_has_its_default() {
    let around = ConfigContext { here: "/srv/gate".into(), host: Some("Ann's box".into()), flags: Vec::new() };
    let (config, origins) = Config::load(None, &[], &around).unwrap();
    assert_eq!(config.node.as_str(), "Ann-s-box");
    assert_eq!(config.data, Path::new("/srv/gate/data"));
    assert_eq!(config.policies, Path::new("/srv/gate/policies"));
    assert_eq!(config.listen.to_string(), "127.0.0.1:7420");
    assert_eq!(config.stop_listen.to_string(), "127.0.0.1:7421");
    assert_eq!(config.database, DatabaseLocation::File("/srv/gate/data/sluice.db".into()));
    assert!(config.public_hosts.is_empty() && config.origins.is_empty() && config.tls.is_none());
    assert_eq!((config.limits.body.as_bytes(), config.limits.head.as_bytes()), (1 << 20, 32 << 10));
    assert_eq!(config.approvals.expiry, Millis::from_hours(1));
    assert_eq!(config.state.session.as_bytes(), 50_000_000);
    assert!(config.filesystem.roots.is_empty() && !config.filesystem.allow_hard_links);
    assert_eq!(origins.of("listen"), ConfigOrigin::Default);
    assert_eq!(config.shown().len(), known_keys().len());
}

#[test]
fn an_empty_file_and_empty_sections_say_nothing() {
    let bare = ConfigTestFolder::new("").good();
    let empty = ConfigTestFolder::new("# nothing yet\nlisten:\nlimits:\nfilesystem:\n  roots:\n").good();
    assert_eq!((bare.listen, &bare.limits), (empty.listen, &empty.limits));
    assert!(empty.filesystem.roots.is_empty());
}

#[test]
fn a_flag_wins_over_a_variable_a_variable_over_the_file_and_the_file_over_the_default() {
    let file = "batch:\n  limit: 6\n";
    let limit = |world: &ConfigTestFolder| {
        let (config, origins) = world.load().unwrap();
        (config.batch.limit, origins.of("batch.limit").kind())
    };
    assert_eq!(limit(&ConfigTestFolder::new("")), (5, "default"));
    assert_eq!(limit(&ConfigTestFolder::new(file)), (6, "file"));
    let world = ConfigTestFolder::new(file).env("SLUICE_BATCH__LIMIT", "7");
    assert_eq!(limit(&world), (7, "environment"));
    let world = world.flag("--batch-limit", "batch.limit", "8");
    assert_eq!(limit(&world), (8, "flag"));
    let origin = ConfigTestFolder::new(file).load().unwrap().1.of("batch.limit").to_string();
    assert!(origin.ends_with("sluice.yaml:2:10"), "{origin}");
}

#[test]
fn an_unknown_key_is_shown_where_it_stands_with_the_one_that_is_meant() {
    assert_eq!(
        ConfigTestFolder::new("node: a\nlimits:\n  conections: 5\n").said(),
        "error: unknown key `conections` in `limits` [config.unknown_key]\n  --> sluice.yaml:3:3\n   |\n 3 |   \
         conections: 5\n   |   ^^^^^^^^^^\n  hint: did you mean `connections`?"
    );
    assert!(ConfigTestFolder::new("lisen: 1\n").said().contains("did you mean `listen`?"));
    assert!(ConfigTestFolder::new("ttl: 1h\n").said().contains("did you mean `sessions.ttl`?"));
    let gone = ConfigTestFolder::new("sessions: {task_from: [clerk]}\n").said();
    assert!(gone.contains("unknown key `task_from`") && gone.contains("sluice keys create --task-for"), "{gone}");
}

#[test]
fn every_problem_of_every_layer_is_said_at_once() {
    let world = ConfigTestFolder::new("listen: here\nlimits: 5\nbatch: {limit: many, window: 0s}\nwhat: 1\n")
        .env("SLUICE_LOG__LEVEL", "inof")
        .env("SLUICE_LISTN", "x")
        .flag("--data", "data", "~/x");
    assert_eq!(
        world.codes(),
        [
            "config.value",
            "config.type",
            "config.value",
            "config.value",
            "config.unknown_key",
            "config.unknown_variable",
            "config.value",
            "config.value"
        ]
    );
    let said = world.said();
    for part in [
        "environment variable SLUICE_LISTN",
        "did you mean `SLUICE_LISTEN`?",
        "environment variable SLUICE_LOG__LEVEL",
        "did you mean `info`?",
        "--> --data",
        "must lie between 1s and 31d, not `0s`",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

#[test]
fn variables_of_the_command_line_and_of_tests_are_not_ours() {
    let mut world = ConfigTestFolder::new("");
    for name in [
        "SLUICE_URL",
        "SLUICE_CA_FILE",
        "SLUICE_TOKEN",
        "SLUICE_TOKEN_FILE",
        "SLUICE_PAGER",
        "SLUICE_CONFIG",
        "SLUICE_TEST_X",
        "PATH",
    ] {
        world = world.env(name, "x");
    }
    world.env("SLUICE_NODE", "").good();
}

#[test]
fn a_file_with_two_readings_is_refused() {
    for (text, code) in [
        ("node: a\nnode: b\n", "config.duplicate_key"),
        ("node: &x a\n", "config.alias"),
        ("node: !x a\n", "config.syntax"),
        ("node: [a\n", "config.syntax"),
        ("- node\n", "config.type"),
        ("batch: {services: {email: {limit: 5, windw: 1h}}}\n", "config.value"),
    ] {
        assert_eq!(ConfigTestFolder::new(text).codes(), [code], "{text}");
    }
    let missing = Config::load(Some(Path::new("/nowhere/sluice.yaml")), &[], &ConfigContext::default()).unwrap_err();
    assert_eq!(missing.faults[0].code, "config.unreadable");
}

#[test]
fn paths_of_the_file_begin_at_its_folder_and_others_where_the_program_was_started() {
    let world = ConfigTestFolder::new("data: ./d\npolicies: p\n").env("SLUICE_POLICIES", "q");
    let config = world.good();
    assert_eq!(config.data, world.folder.path().join("d"));
    assert_eq!(config.policies, Path::new("/here/q"));
    assert_eq!(config.database, DatabaseLocation::File(world.folder.path().join("d/sluice.db")));
}

#[test]
fn other_machines_are_answered_only_with_tls_or_behind_a_proxy() {
    let open = "listen: 0.0.0.0:7420\n";
    assert_eq!(ConfigTestFolder::new(open).codes(), ["config.conflict"]);
    assert_eq!(ConfigTestFolder::new("stop_listen: 192.0.2.1:7421\n").codes(), ["config.conflict"]);
    assert_eq!(ConfigTestFolder::new("listen: '[::]:7420'\n").codes(), ["config.conflict"]);
    assert_eq!(ConfigTestFolder::new("listen: '[::ffff:127.0.0.1]:7420'\n").codes(), [""; 0]);
    assert!(ConfigTestFolder::new(&format!("{open}behind_proxy: true\n")).good().behind_proxy);
    let config = ConfigTestFolder::new(&format!("{open}tls: {{cert: c.pem, key: k.pem}}\n")).good();
    assert!(config.tls.unwrap().key.ends_with("k.pem"));
    assert_eq!(ConfigTestFolder::new("tls: {cert: c.pem}\n").codes(), ["config.conflict"]);
    assert_eq!(ConfigTestFolder::new("behind_proxy: yes\n").codes(), ["config.value"]);
}

#[test]
fn the_second_listener_is_one_port_above_the_first() {
    assert_eq!(ConfigTestFolder::new("listen: 127.0.0.1:9000\n").good().stop_listen.to_string(), "127.0.0.1:9001");
    assert_eq!(ConfigTestFolder::new("listen: 127.0.0.1:0\n").good().stop_listen.port(), 0);
    assert_eq!(ConfigTestFolder::new("listen: 127.0.0.1:65535\n").codes(), ["config.conflict"]);
    assert_eq!(ConfigTestFolder::new("stop_listen: 127.0.0.1:7420\n").codes(), ["config.conflict"]);
}

#[test]
fn the_url_of_a_database_is_never_shown() {
    let secret = "postgres://sluice:hunter2@db/sluice";
    let from_file = ConfigTestFolder::new(&format!("database:\n  url: {secret}\n"));
    let from_env = ConfigTestFolder::new("").env("SLUICE_DATABASE_URL", secret);
    let regular = ConfigTestFolder::new("").env("SLUICE_DATABASE__URL", secret);
    let by_file = ConfigTestFolder::new("database: {url_file: url.txt}\n");
    fs::write(by_file.folder.path().join("url.txt"), format!("{secret}\n")).unwrap();
    for world in [from_file, from_env, regular, by_file] {
        let config = world.good();
        let DatabaseLocation::Server(url) = &config.database else { panic!("{:?}", config.database) };
        assert_eq!(url.expose(), secret);
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(!format!("{:?}", config.shown()).contains("hunter2"));
    }
    let shown = ConfigTestFolder::new("").env("SLUICE_DATABASE_URL", secret).good();
    assert!(shown.shown().contains(&("database.url".into(), "set (hidden)".into())));
}

#[test]
fn no_problem_tells_the_password_of_a_database() {
    for world in [
        ConfigTestFolder::new("database:\n  url: mysql://sluice:hunter2@db/x\n"),
        ConfigTestFolder::new("database:\n  url: 'postgres://sluice:hunter2@db/x\n"),
        ConfigTestFolder::new("database:\n  ur: postgres://sluice:hunter2@db/x\n"),
        ConfigTestFolder::new("database: {url: postgres://sluice:hunter2@db/x, path: x}\n"),
        ConfigTestFolder::new("").env("SLUICE_DATABASE_URL", "mysql://sluice:hunter2@db/x"),
        ConfigTestFolder::new("")
            .env("SLUICE_DATABASE_URL", "postgres://sluice:hunter2@db/x")
            .env("SLUICE_DATABASE__URL", "postgres://sluice:hunter2@db/x"),
    ] {
        assert!(!world.said().contains("hunter2"), "{}", world.said());
    }
    let world = ConfigTestFolder::new("database: {url_file: url.txt}\n");
    assert_eq!(world.codes(), ["config.value"]);
    fs::write(world.folder.path().join("url.txt"), "hunter2").unwrap();
    assert!(!world.said().contains("hunter2"));
}

#[test]
fn the_closest_name_of_a_capability_gives_its_delay() {
    let config =
        ConfigTestFolder::new("holds:\n  delays:\n    'email.*': 1m\n    '*': 10s\n    email.send: 2m\n").good();
    let delay = |name: &str| config.delay_for(&CapabilityName::new(name).unwrap(), Millis::from_secs(30)).as_secs();
    assert_eq!([delay("email.send"), delay("email.delete"), delay("calendar.create")], [120, 60, 10]);
    let config = ConfigTestFolder::new("").env("SLUICE_HOLDS__DELAYS", "email.send=2m, x.*=0s").good();
    let delay = |name: &str| config.delay_for(&CapabilityName::new(name).unwrap(), Millis::from_secs(30)).as_secs();
    assert_eq!([delay("email.send"), delay("x.y"), delay("calendar.create")], [120, 0, 30]);
    for bad in ["{'em*il': 1s}", "{email.send: soon}", "{email.send: 31d}", "[email.send]"] {
        assert_eq!(ConfigTestFolder::new(&format!("holds: {{delays: {bad}}}\n")).codes(), ["config.value"], "{bad}");
    }
}

#[test]
fn a_service_has_its_own_window_where_the_file_or_the_program_says_so() {
    let window = |limit, minutes| Some(SlidingWindow { limit, span: Millis::from_mins(minutes) });
    let config = ConfigTestFolder::new("").good();
    assert_eq!(config.window_for(&service("email")), window(5, 10));
    assert_eq!(config.window_for(&service("filesystem")), window(50, 10));
    assert_eq!(config.window_for(&service("alerts")), window(50, 10));
    assert_eq!(config.window_for(&service("state")), None);
    let config = ConfigTestFolder::new(
        "batch:\n  limit: 7\n  services:\n    email: {limit: 3, window: 1h}\n    alerts: off\n    state: {limit: 9}\n",
    )
    .good();
    assert_eq!(config.window_for(&service("email")), window(3, 60));
    assert_eq!(config.window_for(&service("calendar")), window(7, 10));
    assert_eq!(config.window_for(&service("filesystem")), window(50, 10));
    assert_eq!(config.window_for(&service("alerts")), None);
    assert_eq!(config.window_for(&service("state")), window(9, 10));
    let config = ConfigTestFolder::new("").env("SLUICE_BATCH__SERVICES", "email=3/1h,filesystem=off").good();
    assert_eq!(config.window_for(&service("email")), window(3, 60));
    assert_eq!(config.window_for(&service("filesystem")), None);
}

#[test]
fn a_folder_for_agents_says_whose_it_is() {
    let world = ConfigTestFolder::new(
        "filesystem:\n  roots:\n    - {path: work, agents: [clerk]}\n    - {path: /srv/docs, agents: all, read_only: true}\n",
    );
    let roots = world.good().filesystem.roots;
    let agent = |name: &str| AgentName::new(name).unwrap();
    assert_eq!(roots[0].path, world.folder.path().join("work"));
    assert!(roots[0].agents.contains(&agent("clerk")) && !roots[0].agents.contains(&agent("other")));
    assert!(roots[1].agents.contains(&agent("other")) && roots[1].read_only);
    for bad in
        ["{path: work}", "{agents: all}", "work", "{path: w, agents: some}", "{path: w, agents: all, readonly: true}"]
    {
        assert_eq!(
            ConfigTestFolder::new(&format!("filesystem: {{roots: [{bad}]}}\n")).codes(),
            ["config.value"],
            "{bad}"
        );
    }
    assert_eq!(ConfigTestFolder::new("").env("SLUICE_FILESYSTEM__ROOTS", "/srv").codes(), ["config.value"]);
}

#[test]
fn no_folder_for_agents_reaches_the_files_of_the_gateway() {
    for bad in [
        ".",
        "data",
        "data/agents",
        "/",
        "policies/agents",
        "policies",
        "link",
        "link/agents",
        "x/../data",
        "none/../data",
    ] {
        let world = ConfigTestFolder::new(&format!("filesystem: {{roots: [{{path: {bad}, agents: all}}]}}\n"));
        fs::create_dir_all(world.folder.path().join("data/agents")).unwrap();
        fs::create_dir_all(world.folder.path().join("x")).unwrap();
        std::os::unix::fs::symlink("data", world.folder.path().join("link")).unwrap();
        assert_eq!(world.codes(), ["config.conflict"], "{bad}");
    }
    ConfigTestFolder::new("filesystem: {roots: [{path: database, agents: all}]}\n").good();
}

#[test]
fn thresholds_and_limits_have_an_order() {
    assert_eq!(ConfigTestFolder::new("disk: {low: 100MB/5%}\n").codes(), ["config.conflict"]);
    ConfigTestFolder::new("disk: {low: 100MB/5%, stop: 50MB/2%}\n").good();
    assert_eq!(ConfigTestFolder::new("limits: {streams: 2}\n").codes(), ["config.conflict"]);
    assert_eq!(ConfigTestFolder::new("limits: {connections: 0}\n").codes(), ["config.value"]);
    assert_eq!(ConfigTestFolder::new("approvals: {expiry: 1s}\n").codes(), ["config.value"]);
}

#[test]
fn the_page_and_the_schema_of_the_configuration_are_what_the_code_says() {
    #[expect(clippy::disallowed_methods, reason = "the switch of this test is its edge; nothing else reads it")]
    let update = std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1");
    for (name, text) in [("config.md", markdown()), ("sluice.schema.json", schema())] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        if update {
            fs::write(&path, &text).unwrap();
        }
        let page = fs::read_to_string(&path).unwrap_or_default();
        assert!(page == text, "docs/{name} is stale: run this test with UPDATE_DOCS=1");
    }
}

#[test]
fn every_key_is_in_the_schema_and_says_what_it_means() {
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    for key in known_keys() {
        let (section, name) = key.split_once('.').unwrap_or(("", &key));
        let properties = if section.is_empty() {
            &schema["properties"]
        } else {
            let reference = schema["properties"][section]["$ref"].as_str().unwrap();
            &schema.pointer(reference.strip_prefix('#').unwrap()).unwrap()["properties"]
        };
        assert!(properties[name]["description"].as_str().is_some_and(|text| text.len() > 10), "{key}");
    }
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn a_service_is_described_by_addresses_and_never_by_a_secret() {
    let world = ConfigTestFolder::new(
        "services:\n  connections:\n    gmail:\n      client_id: sluice.apps.example\n      token: http://127.0.0.1:4713/token\n      scopes: [mail]\n    other:\n      adapter: gmail\n",
    );
    let config = world.good();
    let gmail = config.services.connections.get(&service("gmail")).unwrap();
    assert_eq!((gmail.adapter.as_str(), gmail.client_id.as_deref()), ("gmail", Some("sluice.apps.example")));
    assert_eq!(gmail.token.as_deref(), Some("http://127.0.0.1:4713/token"));
    assert_eq!(config.services.connections.get(&service("other")).unwrap().adapter, "gmail");
    for (line, said) in [
        ("client_secret: GOCSPX-x", "--client-secret-file"),
        ("token: http://provider.example/token", "must begin with https"),
        ("authorize: javascript:alert(1)", "authorize"),
        ("tokens: https://provider.example/token", "did you mean `token`?"),
        ("scopes: mail", "must be a list"),
        ("program: bin/gmail", "absolute path"),
        ("program: /opt/gmail", "cannot use `gmail`"),
        ("{program: /opt/x, adapter: emai1}", "cannot use `emai1`"),
        ("{program: /opt/x, adapter: filesystem}", "cannot use `filesystem`"),
        ("read: [/opt]", "without a `program`"),
    ] {
        let yaml = format!("services:\n  connections:\n    gmail:\n      {line}\n");
        let refused = ConfigTestFolder::new(&yaml).said();
        assert!(refused.contains(said), "{refused}");
    }
}
