// Package policy decides, for one HTTP request, whether listproxy may answer it from memory and with which semantics, or why
// it has to be forwarded.
//
// There are three steps, all pure functions without clock, network, locks or state:
//
//   - [Parse] reads a request once. It returns a [Request], which authorization, lookup and answer all use, and a
//     [reason.Reason] if the request is not a list or watch that listproxy understands completely.
//   - [Config.Evaluate] finds the operator's [Rule] for the resource, and applies the API server's own table of list semantics
//     to the request ([Request.Decide]).
//   - [Rule.Representation] and [Request.Indented] decide what depends on the kind of the resource.
//
// The handler and listproxy analyze both decide in this way.
//
// # Invariants
//
// Forwarding is always right, so in doubt the result is a [reason.Reason], never an error. Requests that the API server would
// refuse (400, 422, 406) are forwarded, and it refuses them.
//
// A request can be read in one way only. [Parse] accepts only a canonical URL: the path matches one strict pattern, without
// escapes, and each query parameter is known, occurs once, and has a value in a spelling that every parser reads alike. So
// two parsers of the same URL cannot disagree: the list that is reviewed, the list that is looked up and the list that the
// upstream would have served are the same.
//
// The API server's own code reads the path (RequestInfoFactory), the Accept header and the selectors. This package alone
// reads the query, except that package kubehttp reads whether the request is a watch.
//
// # Which reason, if several apply
//
// [Parse] reports the first that applies:
//
//  1. method, path and watch parameter: not-list, watch, not-canonical
//  2. the rest of the query, the body, and the headers Connection, Upgrade and Origin: not-canonical
//  3. the caller's credentials: credentials
//  4. the selectors: not-canonical
//  5. the Accept header: representation if no kind of resource fits it, if there are several, or if it has too many clauses
//
// The order never changes whether a request is forwarded.
package policy
