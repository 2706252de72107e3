// Package policy decides, for one HTTP request, whether listproxy may answer it
// from memory and with which semantics, or why it has to be forwarded.
//
// It has three steps, all pure functions without clock, network, locks or state:
//
//   - [Parse] reads a request once. It returns a [Request], which authorization, lookup and answer all use, and a
//     [reason.Reason] if the request is not a list or watch that listproxy understands completely.
//   - [Accept.Representation], [Request.Indented] and [Request.CheckSelectors] decide what depends on the kind of the
//     resource: the representation of the answer, and whether the API server treats the selectors in the usual way.
//   - [Request.Decide] applies the API server's own table of list semantics to the list
//     options of the [Request].
//
// A [Config] says what the operator wants: which resources are kept, and how. [Config.Evaluate] puts
// both together: the handler and listproxy analyze decide by it.
//
// # Invariants
//
// Forwarding is always right, so in doubt the result is a [reason.Reason], never an error. Requests
// that the API server would refuse (400, 422, 406) are forwarded, and it refuses them.
//
// A request can be read in one way only. [Parse] accepts only the exact canonical
// form of a list's URL: the path must equal the one rebuilt from its parts, and
// each query parameter must be known, occur once, and have the one spelling of its
// value. So two parsers of the same URL cannot disagree: the list that is reviewed,
// the list that is looked up and the list that the upstream would have served are
// the same.
//
// The API server's own code reads the path (RequestInfoFactory), the Accept header
// and the selectors. Decisions are made from what this package reads of the query:
// RequestInfo gets the path alone, so it cannot read the query differently. Packages kubehttp and observe read nothing
// of the query but whether the request is a watch or a streaming list.
//
// # Which reason, if several apply
//
// [Parse] reports the first that applies:
//
//  1. method, path and watch parameter: not-list, watch, not-canonical
//  2. the rest of the query, the body, and the headers Connection, Upgrade and Origin: not-canonical
//  3. the caller's credentials: credentials
//  4. the selectors: not-canonical
//  5. the Accept header: not-canonical if there are several, or representation; only if it rules out every kind of
//     resource
//
// The order never changes whether a request is forwarded.
package policy
