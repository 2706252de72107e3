package upstreams

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestEndingAtOnce: a second signal ends the process, whatever is in flight.
func TestEndingAtOnce(t *testing.T) {
	harness.Long(t)
	r := takeRig(t)
	p := r.start(plane.URL(), "--shutdown-timeout", "10m")
	slow := r.beginWrite(p, "never")
	r.must(p.Signal(syscall.SIGTERM))
	r.awaitStopping(p)
	if err := r.retire(p); err == nil || !strings.Contains(err.Error(), "signal: terminated") { // which sends it again
		t.Errorf("it ended with %v", err)
	}
	if res, err := http.ReadResponse(slow.reader, nil); err == nil {
		_ = res.Body.Close()
		t.Errorf("the write got %s", res.Status)
	}
}

// awaitStopping waits until p begins to end.
func (r *rig) awaitStopping(p *harness.Proxy) {
	r.Helper()
	r.must(poll.Retry(r.Context(), "the end to begin", func() error {
		if !strings.Contains(p.Log(), "msg=stopping") {
			return errors.New("it has not")
		}
		return nil
	}))
}

// slowWrite is a POST whose body is half sent.
type slowWrite struct {
	*rig
	conn   *tls.Conn
	reader *bufio.Reader
	rest   string
}

// beginWrite begins to create a ConfigMap through p, and returns when p has begun to read it.
func (r *rig) beginWrite(p *harness.Proxy, name string) slowWrite {
	r.Helper()
	body, err := json.Marshal(r.object(load.ConfigMaps, name))
	r.must(err)
	cas := x509.NewCertPool()
	cas.AppendCertsFromPEM(r.through().CAData)
	conn, err := tls.Dial("tcp", p.Address(), &tls.Config{RootCAs: cas, MinVersion: tls.VersionTLS12})
	r.must(err)
	r.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", load.ConfigMaps.Path(r.ns), p.Address(), r.through().BearerToken, len(body))
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
