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
	// Name is the name that the field selector demands exactly; empty if it demands none. The API server authorizes the
	// list for this name.
	Name string
	// Accept gives the representation of the answer, once the kind of resource is known.
	Accept  Accept
	Options ListOptions
	// Watch reports whether it is a watch. WatchOptions are the parameters that only a watch has.
	Watch        bool
	WatchOptions WatchOptions
	// LabelSelector and FieldSelector are the client's own text, which the review has to carry.
	LabelSelector, FieldSelector string
	// Labels and Fields are the parsed selectors. They are not nil, and select everything if the client gave none. A
	// field may be one that the resource does not have: that is not known here.
	Labels labels.Selector
	Fields fields.Selector
	// Shards is nil if the client wants the objects of all shards.
	Shards sharding.Selector
	// Gzip reports whether the API server would compress a large answer.
	Gzip bool
	// Pretty reports whether the API server would indent JSON even if the Accept header does not ask for it: because of
	// the parameter pretty or, without one, of the User-Agent. See [Request.Indented].
	Pretty bool
}

// Verb returns the request's verb in authorization and in audit events.
func (r *Request) Verb() string {
	if r.Watch {
		return "watch"
	}
	return "list"
}

// Parse reads a request as an API server does; info is what [RequestInfo] returned for its method and path alone. None
// means that the request is a list or a watch in canonical form, by a caller who is identified, and that all of it was
// understood. Only then may it be answered from memory.
//
// With any other Reason the Request has only what was understood before, and serves logs and metrics only.
//
// What depends on the kind of the resource is decided later, by [Accept.Representation], [Request.Indented] and
// [Request.CheckSelectors].
//
// The headers must be as net/http's server leaves them. Parse does not change r and does not read its body.
func Parse(r *http.Request, info *request.RequestInfo, credentials Credentials) (*Request, reason.Reason) {
	req := &Request{Labels: labels.Everything(), Fields: fields.Everything()}
	if why := parsePath(r, info, req); why != reason.None {
		return req, why
	}
	req.Pretty = isHuman(r.UserAgent()) // parseQuery replaces it if the query has the parameter
	if why := parseQuery(r.URL.RawQuery, req); why != reason.None {
		return req, why
	}
	if why := checkFraming(r); why != reason.None {
		return req, why
	}
	if why := checkIdentity(r.Header, credentials); why != reason.None {
		return req, why
	}
	req.Gzip = acceptsGzip(r.Header.Get("Accept-Encoding"))
	req.Accept = parseAccept(r.Header["Accept"], req.Watch)
	if why := parseSelectors(req); why != reason.None {
		return req, why
	}
	return req, req.Accept.reasonForAll()
}
