// `oidc-provider`, a certified authorization server: PKCE for every client, refresh tokens that can be used once, sign-in pages.
//   npm install --prefix <folder> (with the package.json beside this file), then
//   <folder>/node_modules/.bin/node provider.mjs <folder> <port>
import { createRequire } from "node:module";
import { join, resolve as absolute } from "node:path";
import { pathToFileURL } from "node:url";

const [, , folder, port] = process.argv;
const resolve = createRequire(join(absolute(folder), "package.json")).resolve;
const { default: Provider } = await import(pathToFileURL(resolve("oidc-provider")).href);
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "sluice",
      client_secret: "sluice-client-secret",
      token_endpoint_auth_method: "client_secret_post",
      redirect_uris: ["http://127.0.0.1:8080/", "http://127.0.0.1:8081/"],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
    },
  ],
  pkce: { required: () => true },
  features: {
    devInteractions: { enabled: true },
    revocation: { enabled: true },
    // For a server that publishes where its tokens come from: clients register themselves, tokens are for one server.
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: async (_, resource) => ({ scope: "read write", audience: resource, accessTokenFormat: "jwt" }),
      useGrantedResource: async () => true,
    },
  },
  scopes: ["openid", "offline_access", "email", "read", "write"],
  issueRefreshToken: async () => true,
  rotateRefreshToken: true,
  findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  ttl: { AccessToken: 60, AuthorizationCode: 30, RefreshToken: 3600, Interaction: 600, Session: 600, Grant: 3600 },
  cookies: { keys: ["not a secret: only for tests on loopback"] },
});
provider.listen(Number(port), "127.0.0.1", () => console.log(`ready ${issuer}`));
