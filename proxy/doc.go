// Package proxy is what stands between clients and the API server: the front, the handler that
// decides about each request, the reviews of what callers may see, and the forwarding of all
// that is not answered from memory. handler.go is a request's way; read it first.
//
// # What it protects, and from whom
//
// Everyone's credentials pass here, and lists of one caller are written from bytes that were
// fetched with the proxy's own rights. So:
//
//   - Nothing is written from memory before the upstream has said, to this caller's own
//     credentials, that the caller may list exactly this ([Authorizer]). Only a yes counts.
//   - For a token that the upstream has not accepted yet nothing is reviewed, and nothing of the cluster
//     or of memory is looked up.
//   - Whether all that was found is still true is checked once, after the last wait (mayAnswer).
//   - What is reviewed and what is looked up come from one parsed value (policy.Request). A
//     request that could be read in two ways is forwarded.
//   - What is forwarded carries the caller's credentials and nothing of the proxy's
//     (the transports of [Transports] for callers' own credentials hold none, which is checked; its
//     transport for stated users sends nothing that does not state a user). The proxy's own are only there, in
//     the feeds of package snapshot, and in [Impersonator], [Catalog], [Schemas], [Servers],
//     [Endpoints], [StorageVersions] and [WatchRBAC].
//   - No answer is made up: no 401, 403, 404, 410, 422. The front refuses for itself only what is
//     malformed, or is no request to this API server at all.
//   - Credentials are in no key, log line or error text ([Identity]).
package proxy
