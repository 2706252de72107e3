package policy

import (
	"net/http"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy/reason"
)

// Request is what [Parse] has read of a list or a watch. The review of the caller's right, the choice of the collection and
// the answer are all made from it, never from the http.Request.
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
	// Name is the NAME of a field selector metadata.name=NAME, or empty. The API server authorizes the list for this name.
	Name string
	// LabelSelector and FieldSelector are the client's own text, which the review carries.
	LabelSelector, FieldSelector string
	// Labels and Fields are the parsed selectors. They are never nil, and select everything if the client gave none.
	Labels labels.Selector
	Fields fields.Selector
	// Shards is nil if the client wants the objects of all shards.
	Shards sharding.Selector

	// From the headers:

	Accept Accept
	// Gzip reports whether the API server would compress a large answer for the Accept-Encoding header.
	Gzip bool
	// Pretty reports whether the parameter pretty, or without it the User-Agent, asks for indented JSON. The Accept header
	// may ask for it, too (see [Request.Indented]).
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
// If the reason is None, the request is a list or a watch in canonical form, it has the credentials of exactly one caller, and
// Parse has understood all of it. Only such a request may be answered from memory. With any other reason, the Request has only
// what Parse had read when it found the reason. That is for logs and metrics.
//
// Parse does not know whether the resource is custom or has namespaces (see [Rule.Representation] and [Request.Indented]).
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
	if !isPlainRequest(r) {
		return req, reason.NotCanonical
	}
	if !identifiesCaller(r.Header, credentials) {
		return req, reason.Credentials
	}
	req.Gzip = acceptsGzip(r.Header.Get("Accept-Encoding"))
	req.Accept = parseAccept(r.Header["Accept"], req.Watch)
	if !parseSelectors(req) {
		return req, reason.NotCanonical
	}
	return req, req.Accept.reasonForAnyResource()
}
