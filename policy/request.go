package policy

import "net/http"

// Request is a list, completely understood. Everything that is done for a request
// (the review, the lookup, the answer) is done from this one value.
type Request struct {
	// Group is empty for the core group.
	Group, Version, Resource string
	// Namespace is empty for a list of the whole resource.
	Namespace      string
	Representation Representation
	Options        ListOptions
	// LabelSelector and FieldSelector are as the client wrote them.
	LabelSelector, FieldSelector string
	// Gzip is true if the API server would compress a large answer.
	Gzip bool
}

// Parse reads a request as an API server does. The empty Reason means that the
// request is a list in canonical form, by a caller with credentials of its own,
// which we understand completely; only then may it be answered from memory.
//
// With any other Reason the Request holds what was understood until then and is
// good for logs only. It is complete if the Reason is ReasonSelector.
//
// The headers are expected as net/http's server leaves them. Parse does not
// change the request and does not read its body.
func Parse(r *http.Request) (Request, Reason) {
	var req Request
	if reason := parsePath(r, &req); reason != "" {
		return req, reason
	}
	if reason := parseQuery(r.URL.RawQuery, &req); reason != "" {
		return req, reason
	}
	if reason := checkFraming(r); reason != "" {
		return req, reason
	}
	if reason := checkIdentity(r.Header); reason != "" {
		return req, reason
	}

	req.Gzip = acceptsGzip(r.Header.Get("Accept-Encoding"))
	representation, reason := negotiate(r.Header["Accept"])
	req.Representation = representation
	switch {
	case req.LabelSelector != "" || req.FieldSelector != "":
		return req, ReasonSelector
	case reason != "":
		return req, reason
	case isHuman(r.UserAgent()):
		return req, ReasonPretty
	}
	return req, ""
}
