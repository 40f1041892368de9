//! The access that people granted to mounted servers.

use sluice_core::UtcMillis;
use sluice_store::MountGrant;

use crate::engines::{across_restarts, everywhere, operator, recorded};

fn grant(at: UtcMillis) -> MountGrant {
    MountGrant {
        mount: "tickets".into(),
        url: "https://mcp.example/mcp".into(),
        resource: "https://mcp.example".into(),
        issuer: "https://auth.example".into(),
        authorize: "https://auth.example/authorize".into(),
        token: "https://auth.example/token".into(),
        revoke: None,
        client_id: "sluice".into(),
        client_origin: "registered".into(),
        client_auth: "client_secret_basic".into(),
        requested: vec!["read".into(), "write".into()],
        granted: vec!["read".into()],
        ends_at: Some(at),
        by: operator().to_string(),
        at,
    }
}

#[test]
fn a_mount_has_one_grant_and_who_gave_and_took_it_is_recorded() {
    everywhere(|world| {
        let of = |mount: &str| world.wait(world.store.mount_grant(mount)).unwrap();
        assert_eq!(of("tickets"), None);
        let first = grant(world.now());
        world.wait(world.store.keep_mount_grant(first.clone(), operator())).unwrap();
        assert_eq!(of("tickets"), Some(first.clone()));
        let wider = MountGrant { granted: vec!["read".into(), "write".into()], ends_at: None, ..first };
        world.wait(world.store.keep_mount_grant(wider.clone(), operator())).unwrap();
        assert_eq!(of("tickets"), Some(wider));
        assert_eq!((of("other"), recorded(world, "mount.connected")), (None, 2));
        let drop = || world.wait(world.store.drop_mount_grant("tickets", "revoked", operator())).unwrap();
        assert!(drop() && !drop(), "the second time there is nothing to take back");
        assert_eq!((of("tickets"), recorded(world, "mount.disconnected")), (None, 1));
    });
}

#[test]
fn a_grant_is_there_after_a_restart() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        let kept = grant(world.now());
        world.wait(world.store.keep_mount_grant(kept.clone(), operator())).unwrap();
        drop(world);
        let world = place.open("gw-1");
        assert_eq!(world.wait(world.store.mount_grant("tickets")).unwrap(), Some(kept));
        world
    });
}
