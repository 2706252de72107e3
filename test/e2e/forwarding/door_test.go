package forwarding

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

const (
	http1 = "HTTP/1.1"
	http2 = "HTTP/2.0"

	cacheStatus = "Cache-Status"

	// stranger has a token that the API server does not know.
	stranger = "stranger"
)

func token(user string) string {
	if user == stranger {
		return "of-a-stranger"
	}
	return cp.Token(user)
}

// A door is a way to the API server: straight, or through listproxy.
type door struct {
	name    string
	url     string
	proxy   *url.URL // where CONNECT goes; nil: nowhere
	roots   *x509.CertPool
	clients map[string]*http.Client // by protocol
	configs func(user string) *rest.Config
	dir     string // kubeconfigs, and a home for kubectl
}

// newDoor makes a door of the configurations for each user.
func newDoor(dir, name string, configs func(user string) *rest.Config) (*door, error) {
	config := configs(controlplane.Anonymous)
	d := &door{
		name: name, url: config.Host, roots: x509.NewCertPool(), configs: configs,
		dir: filepath.Join(dir, name), clients: map[string]*http.Client{},
	}
	d.roots.AppendCertsFromPEM(config.CAData)
	if config.Proxy != nil {
		var err error
		if d.proxy, err = config.Proxy(nil); err != nil { // it is the same for every request
			return nil, err
		}
	}
	for _, proto := range []string{http1, http2} {
		protocols := new(http.Protocols)
		// Both, as client-go has it, where one is for the proxy and one for inside.
		protocols.SetHTTP1(proto == http1 || d.proxy != nil)
		protocols.SetHTTP2(proto == http2)
		d.clients[proto] = &http.Client{
			Transport: &http.Transport{
				TLSClientConfig:    &tls.Config{RootCAs: d.roots, MinVersion: tls.VersionTLS12},
				Protocols:          protocols,
				Proxy:              http.ProxyURL(d.proxy),
				DisableCompression: true, // what arrives is what is looked at
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	for _, user := range controlplane.Users() {
		login := rest.CopyConfig(config)
		if login.CertData == nil {
			login.BearerToken = cp.Token(user.Name)
		}
		if err := harness.WriteKubeconfig(d.kubeconfig(user.Name), login); err != nil {
			return nil, fmt.Errorf("the kubeconfig of %s: %w", user.Name, err)
		}
	}
	return d, nil
}

func throughProxy(p *harness.Proxy) func(user string) *rest.Config {
	return func(user string) *rest.Config { return p.RESTConfig(cp.RESTConfig(user)) }
}

func throughTunnel(p *harness.Proxy) func(user string) *rest.Config {
	return func(user string) *rest.Config { return p.TunnelConfig(cp.RESTConfig(user)) }
}

// eachDoor runs a test through both doors; with -short, through one.
func eachDoor(t *testing.T, test func(t *testing.T, via *door)) {
	t.Helper()
	for _, d := range []*door{via, tunnel} {
		if d == tunnel && testing.Short() {
			continue
		}
		t.Run(d.name, func(t *testing.T) { test(t, d) })
	}
}

func (d *door) kubeconfig(user string) string { return filepath.Join(d.dir, user+".yaml") }

func (d *door) close() {
	for _, c := range d.clients {
		c.CloseIdleConnections()
	}
}

// call is a request as a test writes it.
type call struct {
	proto  string // default HTTP/2
	method string // default GET
	path   string // with the query
	user   string // whose token is sent; default admin
	header http.Header
	body   string
}

// reply is an answer, all of it.
type reply struct {
	Status  int
	Header  http.Header // without Date and Cache-Status
	Body    string
	Trailer http.Header

	cacheStatus string
}

// send sends a request and returns the answer with its body still to be read.
func (d *door) send(ctx context.Context, t *testing.T, c call) *http.Response {
	t.Helper()
	if c.body == "" {
		return d.sendBody(ctx, t, c, nil)
	}
	return d.sendBody(ctx, t, c, strings.NewReader(c.body))
}

// sendBody is send with a body that comes as it comes.
func (d *door) sendBody(ctx context.Context, t *testing.T, c call, body io.Reader) *http.Response {
	t.Helper()
	if c.method == "" {
		c.method = http.MethodGet
	}
	if c.proto == "" {
		c.proto = http2
	}
	req, err := http.NewRequestWithContext(ctx, c.method, d.url+c.path, body)
	expect.NoError(t, err)
	// So that the answers' are the same, and their presence is seen.
	req.Header.Set("Audit-Id", "11111111-2222-3333-4444-555555555555")
	req.Header.Set("User-Agent", "forwarding-test")
	if c.user == "" {
		c.user = controlplane.Admin
	}
	if token := token(c.user); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	maps.Copy(req.Header, c.header)
	res, err := d.clients[c.proto].Do(req)
	if err != nil {
		t.Fatalf("%s %s, %s: %v", c.method, c.path, d.name, err)
	}
	if res.Proto != c.proto {
		t.Fatalf("the answer came over %s, not %s", res.Proto, c.proto)
	}
	return res
}

// do sends a request and reads the answer.
func (d *door) do(t *testing.T, c call) reply {
	t.Helper()
	return d.doWithin(t, patience, c)
}

// doWithin is do for an answer that comes so late at most.
func (d *door) doWithin(t *testing.T, limit time.Duration, c call) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return d.read(t, d.send(ctx, t, c))
}

// read reads an answer.
func (d *door) read(t *testing.T, res *http.Response) reply {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		t.Fatalf("the answer's body to %s %s, %s over %s: %v; status %d, %q",
			res.Request.Method, res.Request.URL.Path, d.name, res.Proto, err, res.StatusCode, body)
	}
	r := reply{
		Status: res.StatusCode, Header: res.Header, Body: string(body),
		Trailer: res.Trailer, cacheStatus: res.Header.Get(cacheStatus),
	}
	r.Header.Del("Date")
	r.Header.Del(cacheStatus)
	return r
}

// diff is what differs between the API server's answer and listproxy's.
//
// net/http tells the length of a short body by itself, and what is short depends on the protocol.
// So the API server's answers of some two to four kilobytes have no length over HTTP/1.1, but
// have one over HTTP/2, by which listproxy gets them.
func diff(want, got reply) string {
	if want.Header.Get("Content-Length") == "" && got.Header.Get("Content-Length") == strconv.Itoa(len(got.Body)) {
		got.Header = got.Header.Clone()
		got.Header.Del("Content-Length")
	}
	want.cacheStatus, got.cacheStatus = "", ""
	return cmp.Diff(want, got, cmp.AllowUnexported(reply{}))
}

// same requires that a read is forwarded for a reason and answered as the API server itself
// answers it. It asks the API server before and after, and again if something changed
// meanwhile.
func same(t *testing.T, c call, reason string) reply {
	t.Helper()
	for range 50 {
		before := direct.do(t, c)
		got := via.do(t, c)
		if diff(before, direct.do(t, c)) != "" {
			continue
		}
		if d := diff(before, got); d != "" {
			t.Errorf("%s %s as %s (-direct +via):\n%s", c.method, c.path, c.user, d)
		}
		wantForwarded(t, got, reason)
		return got
	}
	t.Fatalf("%s %s: the API server's own answers keep changing", c.method, c.path)
	return reply{}
}

// wantForwarded requires that an answer says that it was forwarded, and why.
func wantForwarded(t *testing.T, r reply, reason string) {
	t.Helper()
	if !strings.HasPrefix(r.cacheStatus, "listproxy; fwd=") || !strings.HasSuffix(r.cacheStatus, "; detail="+reason) {
		t.Errorf("Cache-Status is %q, want it forwarded for %q", r.cacheStatus, reason)
	}
}

// own finds what belongs to one object or one moment and differs when the same is done twice.
var own = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`"uid":"[0-9a-f-]{36}"`), `"uid":"UID"`},
	{regexp.MustCompile(`"resourceVersion":"[0-9]+"`), `"resourceVersion":"RV"`},
	{regexp.MustCompile(`"[0-9-]{10}T[0-9:.]{8,}Z"`), `"TIME"`},
	{regexp.MustCompile(`"token":"[^"]+"`), `"token":"TOKEN"`},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), `UUID`},
}

// impersonal returns an answer without what is its object's own.
func (r reply) impersonal() reply {
	for _, o := range own {
		r.Body = o.what.ReplaceAllString(r.Body, o.with)
	}
	// Numbers of different length make bodies of different length.
	r.Header = r.Header.Clone()
	r.Header.Del("Content-Length")
	return r
}
