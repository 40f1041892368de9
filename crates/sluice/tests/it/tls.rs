//! A gateway with a certificate of an authority of one's own, and the command line that is to recognise it.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::cli_gateway::{BareGatewayProcess, free_ports};
use crate::policy::TestFolder;

/// An authority, and a certificate of it for this machine: what the authority is known by, chain and key.
fn certificates() -> (String, String, String) {
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "an authority of this house");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(params, ca_key);
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    (ca, leaf.pem(), key.serialize_pem())
}

#[test]
fn a_certificate_of_ones_own_authority_is_explained_and_then_trusted() {
    let bench = TestFolder::new();
    assert_eq!(bench.run(&["init", "--dir", "gate", "--yes"]).code, 0);
    let (ca, cert, key) = certificates();
    for (name, text) in [("ca.pem", &ca), ("cert.pem", &cert), ("key.pem", &key)] {
        fs::write(bench.path("gate").join(name), text).unwrap();
    }
    let written = fs::read_to_string(bench.path("gate/sluice.yaml")).unwrap();
    let [main, stop] = free_ports();
    let ports =
        format!("listen: 127.0.0.1:{main}\nstop_listen: 127.0.0.1:{stop}\ndisk: {{low: 1MB/0%, stop: 1MB/0%}}\n");
    let config = |tls: &str| fs::write(bench.path("gate/sluice.yaml"), format!("{written}\n{ports}{tls}")).unwrap();
    config("tls: {cert: cert.pem, key: key.pem}\n");
    let _server = BareGatewayProcess::start(&bench).expect("the gateway starts");

    let file = bench.path("gate/sluice.yaml");
    let base = ("SLUICE_CONFIG", file.to_str().unwrap());
    let unknown = bench.run_with(&["status"], "", &[base]);
    assert_eq!(unknown.code, 11, "{}", unknown.stdout);
    for words in ["is not trusted", "unknownissuer", "SLUICE_CA_FILE"] {
        assert!(unknown.stderr.contains(words), "{words}: {}", unknown.stderr);
    }
    assert!(!unknown.stderr.contains("sluice serve"), "{}", unknown.stderr);

    let ca = bench.path("gate/ca.pem");
    let known = [base, ("SLUICE_CA_FILE", ca.to_str().unwrap())];
    let run = bench.run_with(&["status"], "", &known);
    assert_eq!(
        (run.code, run.stdout.contains(&format!("https://127.0.0.1:{main}, open"))),
        (0, true),
        "{}",
        run.stderr
    );
    // The stop lane too, and an address that was typed.
    assert_eq!(bench.run_with(&["freeze"], "", &known).code, 0);
    let url = format!("https://localhost:{main}");
    assert_eq!(bench.run_with(&["unfreeze", "--url", &url], "", &known).code, 0);

    config("tls: {cert: cert.pem, key: key.pem, ca_file: ca.pem}\n");
    let run = bench.run_with(&["status"], "", &[base]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    fs::write(&ca, "nothing").unwrap();
    let run = bench.run_with(&["status"], "", &[base]);
    assert_eq!((run.code, run.stderr.contains("contains no certificate")), (1, true), "{}", run.stderr);
}

#[test]
fn doctor_says_until_when_the_certificate_is_valid() {
    let bench = TestFolder::new();
    assert_eq!(bench.run(&["init", "--dir", "gate", "--yes"]).code, 0);
    let written = fs::read_to_string(bench.path("gate/sluice.yaml")).unwrap();
    fs::write(bench.path("gate/sluice.yaml"), format!("{written}\ntls: {{cert: cert.pem, key: key.pem}}\n")).unwrap();
    let file = bench.path("gate/sluice.yaml");
    let soon = rcgen::date_time_ymd(1970, 1, 1) + std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let far = rcgen::date_time_ymd(2400, 1, 1);
    let week = std::time::Duration::from_secs(7 * 24 * 3600);
    for (end, state, words) in [
        (far, "ok", "valid until 2400-01-01"),
        (soon + week, "warn", "expires soon"),
        (soon - week, "fail", "has expired"),
    ] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = end;
        fs::write(bench.path("gate/cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(bench.path("gate/key.pem"), key.serialize_pem()).unwrap();
        let run = bench.run_with(&["doctor", "--json"], "", &[("SLUICE_CONFIG", file.to_str().unwrap())]);
        let said: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        let found = said["checks"].as_array().unwrap();
        let tls = found.iter().find(|finding| finding["check"] == "tls").unwrap();
        assert_eq!(tls["state"], state, "{tls}");
        assert!(tls["message"].as_str().unwrap().contains(words), "{tls}");
    }
}
