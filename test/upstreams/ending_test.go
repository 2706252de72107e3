package upstreams

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/ask"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/proxyrun"
)

// TestEnding: a listproxy that is told to end ends watches at once and in order, of client-go in protobuf over HTTP/2 and
// in JSON over HTTP/1.1; a write that takes its time is carried out and answered; and that was all it waited for.
func TestEnding(t *testing.T) {
	r := newRig(t, plane, plane.RESTConfig(controlplane.Admin))
	defer r.proxies.Stop(r)
	p := r.start(plane.URL(), "--shutdown-timeout", "10m")
	cfg := r.through()
	cfg.Host = p.URL()

	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	set, err := kubernetes.NewForConfig(cfg)
	r.must(err)
	objects, err := set.CoreV1().ConfigMaps(r.ns).Watch(t.Context(), metav1.ListOptions{})
	r.must(err)
	defer objects.Stop()
	if event := <-objects.ResultChan(); event.Type != watch.Added {
		t.Fatalf("the watch begins with %v", event)
	}
	cfg.ContentType, cfg.NextProtos = "", []string{"http/1.1"}
	old, err := ask.New(cfg, 0)
	r.must(err)
	lines, err := old.HTTP.Get(old.Base + r.path("configmaps") + "?watch=true")
	r.must(err)
	defer lines.Body.Close()
	slow := r.beginWrite(p, "slow")

	ended := make(chan error, 1)
	go func() { ended <- r.retire(p) }()
	for event := range objects.ResultChan() {
		if event.Type == watch.Error {
			t.Errorf("the watch ends with %v", event.Object)
		}
	}
	events, err := io.ReadAll(lines.Body)
	if err != nil {
		t.Errorf("the watch does not end in order: %v", err)
	}
	for line := range strings.Lines(string(events)) {
		if !json.Valid([]byte(line)) || !strings.HasSuffix(line, "\n") {
			t.Errorf("an event was not whole: %q", line)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the process did not wait for the write: %v", err)
	default:
	}
	slow.finish()
	r.must(<-ended)
	if log := p.Log(); !strings.Contains(log, "drained: all requests have ended") {
		t.Error("the log does not say that all requests ended")
	}
}

// TestEndingAtOnce: a second signal ends the process, whatever is in flight.
func TestEndingAtOnce(t *testing.T) {
	r := newRig(t, plane, plane.RESTConfig(controlplane.Admin))
	defer r.proxies.Stop(r)
	p := r.start(plane.URL(), "--shutdown-timeout", "10m")
	slow := r.beginWrite(p, "never")
	r.must(p.Signal(syscall.SIGTERM))
	r.must(retry(t.Context(), "the end to begin", func() error {
		if !strings.Contains(p.Log(), "msg=stopping") {
			return fmt.Errorf("it has not: %s", p.LogWithoutRequests())
		}
		return nil
	}))
	if err := r.retire(p); err == nil || !strings.Contains(err.Error(), "signal: terminated") { // which sends it again
		t.Errorf("it ended with %v", err)
	}
	if res, err := http.ReadResponse(slow.reader, nil); err == nil {
		_ = res.Body.Close()
		t.Errorf("the write got %s", res.Status)
	}
}

// slowWrite is a POST whose body is half sent.
type slowWrite struct {
	*rig
	conn   *tls.Conn
	reader *bufio.Reader
	rest   string
}

// beginWrite begins to create a ConfigMap through p, and returns when p has begun to read it.
func (r *rig) beginWrite(p *proxyrun.Proxy, name string) slowWrite {
	r.Helper()
	body, err := json.Marshal(r.object("configmaps", name))
	r.must(err)
	cas := x509.NewCertPool()
	cas.AppendCertsFromPEM(r.ca)
	conn, err := tls.Dial("tcp", p.Address(), &tls.Config{RootCAs: cas, MinVersion: tls.VersionTLS12})
	r.must(err)
	r.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", r.path("configmaps"), p.Address(), r.through().BearerToken, len(body))
	r.must(err)
	reader := bufio.NewReader(conn)
	status, err := reader.ReadString('\n')
	r.must(err)
	if !strings.HasPrefix(status, "HTTP/1.1 100 ") {
		r.Fatalf("the write is not awaited: %s", status)
	}
	_, err = reader.ReadString('\n')
	r.must(err)
	half := len(body) / 2
	_, err = conn.Write(body[:half])
	r.must(err)
	return slowWrite{r, conn, reader, string(body[half:])}
}

// finish sends the rest, and reads that the object was created.
func (w slowWrite) finish() {
	w.Helper()
	_, err := io.WriteString(w.conn, w.rest)
	w.must(err)
	res, err := http.ReadResponse(w.reader, nil)
	w.must(err)
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); res.StatusCode != http.StatusCreated || err != nil {
		w.Errorf("the write got %s, %v: %s", res.Status, err, body)
	}
}
