package policy

import (
	"net/http"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy/reason"
)

// Request is what [Parse] has read of a request. If Parse has returned None, it is a list or a watch that was completely
// understood. The review of the caller's right, the choice of the collection and the answer are all made from it, never from
// the http.Request.
type Request struct {
	// From the path:

	// Group is empty for the core group.
	Group, Version, Resource string
	// Namespace is empty for a list of the whole resource.
	Namespace string

	// From the query:

	Options ListOptions
	// Watch reports whether the request is a watch.
	Watch bool
	// WatchOptions are the parameters that only a watch has. They are zero for a list.
	WatchOptions WatchOptions
	// Name is the name in a field selector metadata.name=NAME; empty without such a selector. The API server authorizes
	// the list for this name.
	Name string
	// LabelSelector and FieldSelector are the client's own text, which the review has to carry.
	LabelSelector, FieldSelector string
	// Labels and Fields are the parsed selectors. They are never nil, and select everything if the client gave none.
	// Whether the resource has the fields is not known here.
	Labels labels.Selector
	Fields fields.Selector
	// Shards is nil if the client wants the objects of all shards.
	Shards sharding.Selector

	// From the headers:

	// Accept gives the representation of the answer, once it is known whether the resource is custom.
	Accept Accept
	// Gzip reports whether the API server would compress a large answer.
	Gzip bool
	// Pretty reports whether the parameter pretty, or without it the User-Agent, asks for indented JSON. The Accept header
	// may ask for it, too: see [Request.Indented].
	Pretty bool
}

// Verb returns the request's verb in authorization and in audit events.
func (r *Request) Verb() string {
	if r.Watch {
		return "watch"
	}
	return "list"
}

// Parse reads a request as an API server does. info must be what [RequestInfo] returns for r's method and path alone.
//
// With reason None, the request is a list or a watch in canonical form, its caller is identified, and all of the request
// was understood. Only such a request may be answered from memory. With any other reason, the Request has only what
// was read before that reason was found: it is for logs and metrics.
//
// What depends on whether the resource is custom or has namespaces is decided later, by [Accept.Representation],
// [Request.Indented] and [Request.CheckSelectors].
//
// Header names must be canonical, as net/http's server makes them. Parse neither changes r nor reads its body.
func Parse(r *http.Request, info *request.RequestInfo, credentials CredentialKind) (*Request, reason.Reason) {
	req := &Request{Labels: labels.Everything(), Fields: fields.Everything()}
	if why := parsePath(r, info, req); why != reason.None {
		return req, why
	}
	req.Pretty = isHumanClient(r.UserAgent()) // the default, which the parameter pretty overrides
	if why := parseQuery(r.URL.RawQuery, req); why != reason.None {
		return req, why
	}
	if why := checkPlainRequest(r); why != reason.None {
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
	return req, req.Accept.reasonForAnyResource()
}
