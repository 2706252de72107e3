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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

const (
	// rotatingName is the name of a rotating API server in its certificates.
	rotatingName = "api.test"
	// notUpgraded is the argument of RecordAnswer for an answer to an ordinary request.
	notUpgraded = false
	// impersonatesNobody is the argument of New for Transports without credentials of listproxy.
	impersonatesNobody = false
	// impersonates is the argument of New for Transports that impersonate users.
	impersonates = true
)

// rotating is an API server whose own certificate changes, and Transports to it, whose client certificate and CA change.
type rotating struct {
	*Transports
	cfg           *rest.Config
	known         auth.Identity // a caller whom the server has accepted
	clientCA      *proxytest.CA
	first, second *x509.Certificate // listproxy's client certificate, and the one that replaces it

	// The server uses these fields.

	serving    atomic.Pointer[tls.Certificate]  // the server's certificate
	accepted   atomic.Pointer[x509.Certificate] // any other client certificate gets a 401
	sendEvents chan struct{}                    // closed when watches may send events
}

// startRotating starts a server with a certificate that ca has signed, and connects to it. The server accepts the first
// client certificate.
func startRotating(t *testing.T, ca *proxytest.CA) *rotating {
	t.Helper()
	r := &rotating{
		sendEvents: make(chan struct{}),
		known:      proxytest.Identify(auth.NewAuthenticator(nil), "Bearer known"),
		clientCA:   proxytest.NewCA(t),
	}
	r.first = r.clientCA.Issue(t, pkix.Name{CommonName: "listproxy"}, nil)
	r.second = r.clientCA.Issue(t, pkix.Name{CommonName: "listproxy, renewed"}, nil)
	r.serveWith(t, ca)
	r.accepted.Store(r.first)
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(w http.ResponseWriter, req *http.Request) {
		if client := req.TLS.PeerCertificates; len(client) > 0 && !client[0].Equal(r.accepted.Load()) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if req.URL.Path == "/watch" {
			_ = http.NewResponseController(w).Flush()
			<-r.sendEvents
			_, _ = io.WriteString(w, "event")
		}
	})
	api.TLS.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.serving.Load(), nil }

	dir := t.TempDir()
	r.cfg = &rest.Config{Host: api.URL}
	r.cfg.ServerName = rotatingName
	r.cfg.CAFile = filepath.Join(dir, "ca")
	r.cfg.CertFile = filepath.Join(dir, "cert")
	r.cfg.KeyFile = filepath.Join(dir, "key")
	write(t, r.cfg.CAFile, certificatePEM(ca.Cert))
	r.writeClient(t, r.first)

	var err error
	r.Transports, err = New(r.cfg, impersonates)
	expect.NoError(t, err)
	r.RecordAnswer(r.known, notUpgraded, http.MethodGet, http.StatusOK)
	t.Cleanup(func() { r.current.Load().closeIdle() })
	return r
}

// serveWith gives the server a certificate that ca has signed.
func (r *rotating) serveWith(t *testing.T, ca *proxytest.CA) {
	t.Helper()
	leaf := ca.Issue(t, pkix.Name{}, func(c *x509.Certificate) {
		c.DNSNames = []string{rotatingName}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	r.serving.Store(&tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: ca.Key})
}

// writeClient writes the files of listproxy's client certificate.
func (r *rotating) writeClient(t *testing.T, client *x509.Certificate) {
	t.Helper()
	key, err := keyutil.MarshalPrivateKeyToPEM(r.clientCA.Key)
	expect.NoError(t, err)
	write(t, r.cfg.CertFile, certificatePEM(client))
	write(t, r.cfg.KeyFile, key)
}

// mustReload does what Run does every few seconds, and requires that the files have changed.
func (r *rotating) mustReload(t *testing.T) {
	t.Helper()
	if changed, err := r.reload(); err != nil || !changed {
		t.Errorf("reload returns %t and error %v, want true", changed, err)
	}
}

// getByEach sends a request by each kind of transport. There are nine: for a caller who is accepted ("known"), unknown or
// impersonated, and for each of them an ordinary request, an upgrade, and a request by SendAs. It returns the errors by the
// transport's name, such as "known, upgrade".
func (r *rotating) getByEach(t *testing.T) map[string]error {
	t.Helper()
	errs := map[string]error{}
	for name, id := range map[string]auth.Identity{
		"unknown":      proxytest.Identify(auth.NewAuthenticator(nil), "Bearer unknown"),
		"known":        r.known,
		"impersonated": proxytest.Jane(auth.NewAuthenticator(nil)),
	} {
		errs[name] = get(t, r.Transports, r.RoundTripper(id, &kubehttp.Request{}), id, "/api")
		errs[name+", upgrade"] = get(t, r.Transports, r.RoundTripper(id, &kubehttp.Request{Upgrade: "websocket"}), id, "/api")
		errs[name+", SendAs"] = get(t, r.Transports, r.sendAsTransport(id), id, "/api")
	}
	return errs
}

// checkEach requires that a request by each transport is answered.
func (r *rotating) checkEach(t *testing.T, when string) {
	t.Helper()
	for transport, err := range r.getByEach(t) {
		if err != nil {
			t.Errorf("%s, %s: got error %v", when, transport, err)
		}
	}
}

// request returns a caller's request to the API server of up.
func request(t *testing.T, up *Transports, id auth.Identity, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, up.URL().String()+path, http.NoBody)
	expect.NoError(t, err)
	id.SetHeaders(r.Header)
	return r
}

// get sends a request by a transport. Any answer but a 200 is an error.
func get(t *testing.T, up *Transports, transport http.RoundTripper, id auth.Identity, path string) error {
	t.Helper()
	res, err := transport.RoundTrip(request(t, up, id, path))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return errors.Join(err, res.Body.Close())
}

// watch opens a watch of a caller, and returns its body.
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

// TestRotatedFiles: after a change of the CA's file, all callers' requests trust the new CA only. After a change of the
// files of listproxy's own client certificate, no request of an impersonated user uses a connection that was opened with
// the old certificate. Open watches go on.
func TestRotatedFiles(t *testing.T) {
	oldCA, newCA := proxytest.NewCA(t), proxytest.NewCA(t)
	r := startRotating(t, oldCA)
	watches := []io.Reader{r.watch(t, r.known), r.watch(t, proxytest.Jane(auth.NewAuthenticator(nil)))}
	r.checkEach(t, "at the start")

	// listproxy gets another client certificate. The server refuses the first one from now on, as if it had expired.
	r.writeClient(t, r.second)
	r.mustReload(t)
	r.accepted.Store(r.second)
	r.checkEach(t, "with another client certificate")

	// Both sides change to the new CA.
	write(t, r.cfg.CAFile, certificatePEM(newCA.Cert))
	r.mustReload(t)
	r.serveWith(t, newCA)
	r.checkEach(t, "with another CA")

	// The watches that were opened at the start still receive an event.
	close(r.sendEvents)
	for _, watch := range watches {
		expect.Same(t, "event", proxytest.ReadAll(t, watch))
	}

	// A server with a certificate of the old CA is not trusted any more.
	r.serveWith(t, oldCA)
	r.current.Load().closeIdle()
	for transport, err := range r.getByEach(t) {
		if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
			t.Errorf("with a CA that was removed, %s: got error %v, want an unknown authority", transport, err)
		}
	}
}

// TestFilesAreFollowed: Run makes new transports after a change of a file, and only then. While the new content cannot be used,
// the transports stay as they are, and the log says so once for each content.
func TestFilesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ca")
		write(t, file, certificatePEM(proxytest.NewCA(t).Cert))
		config := &rest.Config{Host: "https://" + rotatingName, TLSClientConfig: rest.TLSClientConfig{CAFile: file}}
		up, err := New(config, impersonatesNobody)
		expect.NoError(t, err)
		var log logbuffer.Buffer
		proxytest.RunInBubble(t, func(ctx context.Context) { up.Run(ctx, slog.New(slog.NewTextHandler(&log, nil))) })
		awaitReload := func() *generation {
			time.Sleep(2*kubehttp.ReloadInterval + time.Millisecond)
			synctest.Wait()
			return up.current.Load()
		}
		// Content that is no CA changes nothing, and is logged.
		first := awaitReload()
		for _, bad := range []string{"", "no certificate"} {
			write(t, file, []byte(bad))
			if awaitReload() != first {
				t.Errorf("the transports are new after a change to %q, which is no CA", bad)
			}
		}
		expect.Same(t, 2, strings.Count(log.String(), "cannot be used"))
		// Another CA makes new transports once.
		write(t, file, certificatePEM(proxytest.NewCA(t).Cert))
		second := awaitReload()
		if second == first {
			t.Error("the transports are not new after a change of the file")
		}
		if second != awaitReload() {
			t.Error("the transports are new without a change of the file")
		}
	})
}
