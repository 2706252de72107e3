// Package policy decides, for one HTTP request, whether listproxy may answer it
// from memory and with which semantics, or why it has to be forwarded.
//
// It has three steps, all pure functions without clock, network, locks or state:
//
//   - [Parse] reads a request once. It yields a [Request] value, from which
//     authorization, lookup and answer all proceed, or the [Reason] why the
//     request is not a list that we understand completely.
//   - [Accept.Representation] and [Request.CheckSelectors] say what depends on the
//     kind of the resource: the form of the answer, and whether the selectors do
//     what they say.
//   - [Decide] takes the list options of that value and applies the API server's
//     own table of list semantics.
//
// What an operator wants, a [Config] says: which resources are kept, and how.
//
// # Invariants
//
// Forwarding is always right, so every doubt is a [Reason], never an error.
// Whatever the API server would refuse (400, 422, 406) is forwarded and refused
// there.
//
// One request has one reading. [Parse] accepts only the exact canonical form of
// a list's URL: the path must be the one that is rebuilt from its own parts, and
// each query parameter must be known, occur once, and have one spelling for its
// value. Two parsers of the same URL can then not disagree: what is reviewed, what
// is looked up and what the upstream would have served are the same thing.
//
// The path is read by the API server's own RequestInfoFactory, the Accept header
// by the API server's own parser. The query is read only here; RequestInfo is
// given the path alone, so it cannot form a second opinion of the query. Selectors are
// parsed by the API server's own parsers.
//
// # Which reason, if several apply
//
// [Parse] reports the first of: what is asked for (not-list, watch), how it is
// written (not-canonical, parameter, and pretty as a parameter), how it is
// sent (not-canonical), who asks (impersonation, credentials, anonymous), which
// objects (selector), in which form (not-canonical for several Accept headers,
// representation, pretty). It reports a form only if no kind of resource could be
// answered. The order never changes whether a request is forwarded.
package policy
