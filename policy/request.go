package policy

import (
	"net/http"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy/reason"
)

// Request is a list or a watch that was completely understood. The review, the lookup and the
// answer all use this one value.
type Request struct {
	// Group is empty for the core group.
	Group, Version, Resource string
	// Namespace is empty for a list of the whole resource.
	Namespace string
	// Name is the name that the field selector demands exactly, else empty. The API
	// server authorizes the list for this name.
	Name string
	// Accept says in which representation to answer, once the kind of resource is known.
	Accept  Accept
	Options ListOptions
	// Watch reports whether it is a watch, and WatchOptions are those that a list does not have.
	Watch        bool
	WatchOptions WatchOptions
	// LabelSelector and FieldSelector are as the client wrote them, which is how the
	// review has to carry them.
	LabelSelector, FieldSelector string
	// Labels and Fields are the same, parsed. They select everything if the client
	// wrote nothing, and are not nil in what Parse returns. The names of fields are the
	// client's: whether the resource has them is not known here.
	Labels labels.Selector
	Fields fields.Selector
	// Shards is nil if the client wants the objects of all shards.
	Shards sharding.Selector
	// Gzip is true if the API server would compress a large answer.
	Gzip bool
	// Pretty is true if the API server would indent JSON even if the Accept header does not ask for
	// it: because of the parameter, or else of the User-Agent. See [Request.Indented].
	Pretty bool
}

// Verb is the request's verb in authorization and in audit events.
func (r *Request) Verb() string {
	if r.Watch {
		return "watch"
	}
	return "list"
}

// Parse reads a request as an API server does; info is what [RequestInfo] made of its method and
// path alone. The empty Reason means that the request is a list or a watch in canonical form, by a
// caller who is known, which we understand completely; only then may it be answered from memory.
//
// With any other Reason the Request holds what was understood until then and is
// good for logs only.
//
// Some answers depend on the resource, and must be asked for when it is known:
// [Accept.Representation], [Request.Indented] and [Request.CheckSelectors].
//
// The headers are expected as net/http's server leaves them. Parse does not
// change the request and does not read its body.
func Parse(r *http.Request, info *request.RequestInfo, by Credentials) (*Request, reason.Reason) {
	req := &Request{Labels: labels.Everything(), Fields: fields.Everything()}
	if reason := parsePath(r, info, req); reason != "" {
		return req, reason
	}
	req.Pretty = isHuman(r.UserAgent())
	if reason := parseQuery(r.URL.RawQuery, req); reason != "" {
		return req, reason
	}
	if reason := checkFraming(r); reason != "" {
		return req, reason
	}
	if reason := checkIdentity(r.Header, by); reason != "" {
		return req, reason
	}

	req.Gzip = acceptsGzip(r.Header.Get("Accept-Encoding"))
	req.Accept = parseAccept(r.Header["Accept"], req.Watch)
	if reason := parseSelectors(req); reason != "" {
		return req, reason
	}
	return req, req.Accept.refused()
}
