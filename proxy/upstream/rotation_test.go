package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

// rotatingName is the name of a rotating API server in its certificates.
const rotatingName = "api.test"

// rotating is an API server whose certificate changes, and the Transports to it. It refuses (401) client
// certificates other than the one that it accepts. A watch has no event until goOn is closed.
type rotating struct {
	*Transports
	shown         atomic.Pointer[tls.Certificate]
	accepted      atomic.Pointer[x509.Certificate]
	goOn          chan struct{}
	cfg           *rest.Config
	known         auth.Identity
	clients       *proxytest.CA
	first, second *x509.Certificate // listproxy's own, which clients has signed; the first is accepted
}

// startRotating returns a server with a certificate that ca has signed. The configuration trusts ca
// by a file.
func startRotating(t *testing.T, ca *proxytest.CA) *rotating {
	t.Helper()
	r := &rotating{goOn: make(chan struct{}), known: proxytest.Identify(auth.NewAuthenticator(nil), "Bearer known"), clients: proxytest.NewCA(t)}
	r.first = r.clients.Issue(t, pkix.Name{CommonName: "listproxy"}, nil)
	r.second = r.clients.Issue(t, pkix.Name{CommonName: "listproxy, renewed"}, nil)
	r.show(t, ca)
	r.accepted.Store(r.first)
	// HTTP/2 is for some ways; others are over HTTP/1.1.
	api := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, req *http.Request) {
		if shown := req.TLS.PeerCertificates; len(shown) > 0 && !shown[0].Equal(r.accepted.Load()) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if req.URL.Path == "/watch" {
			_ = http.NewResponseController(w).Flush()
			<-r.goOn
			_, _ = io.WriteString(w, "event")
		}
	})
	api.TLS.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.shown.Load(), nil }

	dir := t.TempDir()
	r.cfg = &rest.Config{Host: api.URL}
	r.cfg.ServerName = rotatingName
	r.cfg.CAFile, r.cfg.CertFile, r.cfg.KeyFile = filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	write(t, r.cfg.CAFile, certificatePEM(ca.Cert))
	return r
}

// connect makes the Transports.
func (r *rotating) connect(t *testing.T) {
	t.Helper()
	var err error
	if r.Transports, err = New(r.cfg); err != nil {
		t.Fatal(err)
	}
	expect.NoError(t, r.Impersonate(r.cfg))
	r.Answered(r.known, false, http.MethodGet, http.StatusOK)
	t.Cleanup(func() { r.current.Load().closeIdle() })
}

// show makes the server show a certificate that ca has signed.
func (r *rotating) show(t *testing.T, ca *proxytest.CA) {
	t.Helper()
	leaf := ca.Issue(t, pkix.Name{}, func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{rotatingName}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	r.shown.Store(&tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: ca.Key})
}

// logInWith writes a client certificate and its key.
func (r *rotating) logInWith(t *testing.T, client *x509.Certificate) {
	t.Helper()
	key, err := keyutil.MarshalPrivateKeyToPEM(r.clients.Key)
	expect.NoError(t, err)
	write(t, r.cfg.CertFile, certificatePEM(client))
	write(t, r.cfg.KeyFile, key)
}

// lookAtFiles does what Run does every few seconds.
func (r *rotating) lookAtFiles(t *testing.T) {
	t.Helper()
	if changed, err := r.update(); err != nil || !changed {
		t.Errorf("the files: changed %t, %v", changed, err)
	}
}

// ask sends a request in each way there is, and returns what came of each, by the way's name.
func (r *rotating) ask(t *testing.T) map[string]error {
	t.Helper()
	unknown := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer unknown")
	said := map[string]error{}
	for name, id := range map[string]auth.Identity{"unknown": unknown, "known": r.known, "impersonated": proxytest.Jane(auth.NewAuthenticator(nil))} {
		said[name] = get(t, r.Transports, r.RoundTripper(id, &kubehttp.Request{}), id, "/api")
		said[name+", upgrade"] = get(t, r.Transports, r.RoundTripper(id, &kubehttp.Request{Upgrade: "websocket"}), id, "/api")
		said[name+", own"] = get(t, r.Transports, r.ownRoundTripper(id), id, "/api")
	}
	return said
}

// good wants each request to be answered.
func (r *rotating) good(t *testing.T, when string) {
	t.Helper()
	for way, err := range r.ask(t) {
		if err != nil {
			t.Errorf("%s, %s: %v", when, way, err)
		}
	}
}

// request is one of a caller to what up leads to.
func request(t *testing.T, up *Transports, id auth.Identity, path string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, up.URL().String()+path, http.NoBody)
	expect.NoError(t, err)
	id.Present(request.Header)
	return request
}

// get sends a request in one way, and says what was wrong with it.
func get(t *testing.T, up *Transports, over http.RoundTripper, id auth.Identity, path string) error {
	t.Helper()
	res, err := over.RoundTrip(request(t, up, id, path))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return errors.Join(err, res.Body.Close())
}

// watch opens a watch of a caller, over a way that others share.
func (r *rotating) watch(t *testing.T, id auth.Identity) io.Reader {
	t.Helper()
	res, err := r.RoundTripper(id, &kubehttp.Request{LongRunning: true}).RoundTrip(request(t, r.Transports, id, "/watch"))
	expect.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res.Body
}

func certificatePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	expect.NoError(t, os.WriteFile(file, content, 0o600))
}

// TestRotatedFiles: when the file of the API server's CA changes, all requests of callers trust what it holds
// then, and nothing else; and when the files of listproxy's own client certificate do, no request of an
// impersonated user uses a connection that the one before has opened. Watches that are open go on.
func TestRotatedFiles(t *testing.T) {
	old, fresh := proxytest.NewCA(t), proxytest.NewCA(t)
	r := startRotating(t, old)
	r.logInWith(t, r.first)
	r.connect(t)
	watches := []io.Reader{r.watch(t, r.known), r.watch(t, proxytest.Jane(auth.NewAuthenticator(nil)))}
	r.good(t, "at the start")

	r.logInWith(t, r.second)
	r.lookAtFiles(t)
	r.accepted.Store(r.second) // the first has ended
	r.good(t, "with another client certificate")

	write(t, r.cfg.CAFile, certificatePEM(fresh.Cert))
	r.lookAtFiles(t)
	r.show(t, fresh)
	r.good(t, "with another CA")
	close(r.goOn)
	for _, watch := range watches {
		expect.Same(t, "event", proxytest.ReadAll(t, watch))
	}

	r.show(t, old)
	r.current.Load().closeIdle()
	for way, err := range r.ask(t) {
		if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); !unknown {
			t.Errorf("a CA that was removed, %s: %v", way, err)
		}
	}
}

// TestFilesAreFollowed: Run uses the new content of a file. While that cannot be used, the one before stays in use, and
// the log says so once.
func TestFilesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ca")
		write(t, file, certificatePEM(proxytest.NewCA(t).Cert))
		up, err := New(&rest.Config{Host: "https://" + rotatingName, TLSClientConfig: rest.TLSClientConfig{CAFile: file}})
		expect.NoError(t, err)
		var log logbuffer.Buffer
		proxytest.RunInBubble(t, func(ctx context.Context) { up.Run(ctx, slog.New(slog.NewTextHandler(&log, nil))) })
		now := func() *transportSets {
			time.Sleep(2*kubehttp.ReloadInterval + time.Millisecond)
			synctest.Wait()
			return up.current.Load()
		}
		first := now()
		for _, bad := range []string{"", "no certificate"} {
			write(t, file, []byte(bad))
			if now() != first {
				t.Errorf("%q was taken for a CA", bad)
			}
		}
		if got := strings.Count(log.String(), "cannot be used"); got != 2 {
			t.Errorf("the log has %d lines about two contents:\n%s", got, log.String())
		}
		write(t, file, certificatePEM(proxytest.NewCA(t).Cert))
		if second := now(); second == first || second != now() {
			t.Error("the files are not followed, or not only when they change")
		}
	})
}

// TestRenewedByPlugin: when a plugin brings another client certificate, no request of an
// impersonated user uses a connection that was made with the one before.
func TestRenewedByPlugin(t *testing.T) {
	r := startRotating(t, proxytest.NewCA(t))
	said := filepath.Join(t.TempDir(), "said")
	r.cfg.CertFile, r.cfg.KeyFile = "", ""
	r.cfg.ExecProvider = &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "cat", Args: []string{said},
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	// What has ended is asked for again before each request.
	say := func(certificate *x509.Certificate) {
		key, err := keyutil.MarshalPrivateKeyToPEM(r.clients.Key)
		expect.NoError(t, err)
		write(t, said, fmt.Appendf(nil, `{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {
			"expirationTimestamp": "2000-01-01T00:00:00Z", "clientCertificateData": %q, "clientKeyData": %q}}`,
			certificatePEM(certificate), key))
	}
	say(r.first)
	r.connect(t)
	for _, certificate := range []*x509.Certificate{r.first, r.second} {
		say(certificate)
		r.accepted.Store(certificate)
		for _, just := range []string{"just said", "said before"} {
			for way, err := range r.ask(t) {
				// client-go has closed the connections, and HTTP/2 can write to one before it notices.
				if closed := just == "just said" && errors.Is(err, net.ErrClosed); err != nil && !closed {
					t.Errorf("%s, %s, %s: %v", certificate.Subject, just, way, err)
				}
			}
		}
	}
}
