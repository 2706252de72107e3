package upstream

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Transports sends callers' requests to the API server, each with the caller's own credentials. It holds listproxy's own
// credentials only if listproxy impersonates users. While Run runs, it reloads the files of the CA and of listproxy's own
// client certificate. It is safe for concurrent use.
type Transports struct {
	*auth.Verdicts // the API server's verdicts about callers' tokens

	base         *url.URL     // of the API server
	cfg          *rest.Config // has credentials only if impersonates is true
	impersonates bool
	current      atomic.Pointer[generation]
	onAnswer     func(status int) // called for each answer; may be nil
}

// generation has all transports that were made from one version of the files in the client configuration. When a file changes,
// a new generation replaces the current one, so that no new request uses a connection made with the former CA or client
// certificate. Requests in flight go on.
type generation struct {
	config        *rest.Config  // with the files' content in place of their names
	anonymous     *transportSet // without credentials of listproxy
	impersonating *transportSet // with listproxy's own credentials; nil if listproxy impersonates nobody
}

// lanes is the number of transports over which callers' short requests are spread. As many other transports carry the
// long-running requests. All short requests of one caller go over the same transport: this is the caller's lane. A transport
// usually has one HTTP/2 connection, and opens another when that is full.
//
// Some load balancers close a whole connection when a client gives up one request on it. With sixteen lanes, a client that
// gives up short requests disturbs one caller in sixteen, and nobody's watches.
const lanes = 16

// transportSet has the transports for callers with credentials of their own, or for callers whom listproxy impersonates. An
// accepted caller is one with the verdict [auth.Accepted].
type transportSet struct {
	short   [lanes]http.RoundTripper // for short requests of accepted callers
	long    [lanes]http.RoundTripper // for long-running requests of accepted callers
	unknown http.RoundTripper        // for callers who are not accepted ([unknownCallers])
	http1   http.RoundTripper        // for upgrades, and for [Transports.SendAs] as a caller who is not accepted
	sendAs  http.RoundTripper        // for [Transports.SendAs] as an accepted caller
	all     []*http.Transport        // the transports under all of the above
}

// New returns the Transports to the API server that cfg names. It must be reached over TLS, since callers' tokens are sent to
// it.
//
//   - For callers with credentials of their own, New uses only a part of cfg: the host with its path prefix, the settings of
//     TLS without a client certificate, the network proxy and the dialer. It returns an error if a transport for these callers
//     would hold credentials.
//   - If impersonates is true, the Transports also send requests of users whom listproxy itself has verified, with the
//     credentials of cfg. The account of cfg must have the right to impersonate these users.
func New(cfg *rest.Config, impersonates bool) (*Transports, error) {
	base, err := BaseURL(cfg)
	if err != nil {
		return nil, err
	}
	if !impersonates {
		cfg = rest.AnonymousClientConfig(cfg)
	}
	t := &Transports{Verdicts: auth.NewVerdicts(), base: base, cfg: cfg, impersonates: impersonates}
	if _, err := t.reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// OnAnswer sets a function that t calls with the status of each answer. It must be called before any request is sent.
func (t *Transports) OnAnswer(onAnswer func(status int)) { t.onAnswer = onAnswer }

// RecordAnswer records the status of the API server's answer to a caller's request. It calls the function of OnAnswer, and the
// method of Verdicts with the same name.
func (t *Transports) RecordAnswer(id auth.Identity, upgrade bool, method string, status int) {
	if t.onAnswer != nil {
		t.onAnswer(status)
	}
	t.Verdicts.RecordAnswer(id, upgrade, method, status)
}

// URL returns the API server's base URL. Its path is the prefix of every request's path, usually empty, and has no trailing
// slash.
func (t *Transports) URL() *url.URL {
	base := *t.base
	return &base
}

// SendAs sends r, which listproxy itself has made, as the caller id, and returns the answer. r must have no credentials: SendAs
// adds the caller's. For a user whom listproxy has verified, SendAs adds listproxy's own credentials, and Impersonate-* headers
// for exactly this user. SendAs follows no redirects, and its errors contain no credentials.
func (t *Transports) SendAs(ctx context.Context, id auth.Identity, r *http.Request) (*http.Response, error) {
	id.SetHeaders(r.Header)
	res, err := t.sendAsTransport(id).RoundTrip(r.WithContext(ctx))
	if err == nil {
		const upgrade = false
		t.RecordAnswer(id, upgrade, r.Method, res.StatusCode)
	}
	return res, err
}

// RoundTripper returns the transport for a caller's request. The transport uses HTTP/2 if the API server speaks it, but
// HTTP/1.1 for upgrades, and for most requests of callers who are not accepted ([unknownCallers]). It follows no redirects,
// decompresses nothing, and changes no headers. Only for a user whom listproxy impersonates, it adds listproxy's credentials.
func (t *Transports) RoundTripper(id auth.Identity, r *kubehttp.Request) http.RoundTripper {
	transports := t.transportsFor(id)
	flow, accepted := t.AcceptedFlow(id)
	switch { // the first case that holds decides
	case transports == nil:
		return refusingTransport{}
	case r.Upgrade != "":
		return transports.http1 // an upgrade takes over the connection
	case !accepted:
		return transports.unknown
	}
	lane := flow[0] % lanes // flow is a hash of who the caller is
	if r.LongRunning {
		return transports.long[lane]
	}
	return transports.short[lane]
}

// sendAsTransport returns the transport for a request of [Transports.SendAs]. Accepted callers share a transport, which carries
// no other requests.
func (t *Transports) sendAsTransport(id auth.Identity) http.RoundTripper {
	transports := t.transportsFor(id)
	_, accepted := t.AcceptedFlow(id)
	switch {
	case transports == nil:
		return refusingTransport{}
	case !accepted:
		return transports.http1 // a 401 would close an HTTP/2 connection (see unknownCallers)
	}
	return transports.sendAs
}

// transportsFor returns the transports for a caller, or nil if listproxy has verified the caller but impersonates nobody.
func (t *Transports) transportsFor(id auth.Identity) *transportSet {
	if id.VerifiedUser() != nil {
		return t.current.Load().impersonating
	}
	return t.current.Load().anonymous
}

// unknownCallers sends the requests of callers whom the API server has not accepted:
//
//   - Requests without a body go over HTTP/1.1. kube-apiserver closes an HTTP/2 connection after every 401 and every anonymous
//     request (UnauthenticatedHTTP2DOSMitigation), so each made-up token would cost a handshake.
//   - Requests with a body go over HTTP/2. There kube-apiserver refuses a request at once. Over HTTP/1.1 it would read the
//     whole body first.
type unknownCallers struct{ http1, http2 http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (u unknownCallers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return u.http1.RoundTrip(r)
	}
	return u.http2.RoundTrip(r)
}
