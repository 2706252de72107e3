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
//     credentials, that the caller may list exactly this ([Reviewer]). Only a yes counts.
//   - For a token that the upstream has not accepted yet nothing is reviewed and nothing looked up.
//   - What was found is held against the present once, after everything that was waited for (mayAnswer).
//   - What is reviewed and what is looked up come from one parsed value (policy.Request). A
//     request that could be read in two ways is forwarded.
//   - What is forwarded carries the caller's credentials and nothing of the proxy's
//     ([Upstream] holds none and is checked for it; the proxy's own are only in the feeds and
//     watches of package snapshot, [Catalog], [Schemas], [Servers], [Endpoints], [StorageVersions] and [WatchRBAC]).
//   - No answer is made up: no 401, 403, 404, 410, 422. The front refuses for itself only what is
//     malformed, or is no request to this API server at all.
//   - Credentials are in no key, log line or error text ([Identity]).
package proxy
