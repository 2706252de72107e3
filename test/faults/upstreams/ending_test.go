package upstreams

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestEnding: a listproxy that is told to end ends watches at once and in order, in protobuf over
// HTTP/2 and in JSON over HTTP/1.1, also while large events come, and to clients that have not read
// those before; a write that takes its time is carried out and answered; and that was all it waited
// for.
func TestEnding(t *testing.T) {
	harness.Long(t)
	r := takeRig(t)
	p := r.start(plane.URL(), "--shutdown-timeout", "10m")
	frames := r.beginWatch(p, 2, "application/vnd.kubernetes.protobuf;stream=watch")
	lines := r.beginWatch(p, 1, "application/json")
	slow := r.beginWrite(p, "slow")
	written, stop := r.writeLarge()
	defer stop()
	for range unread {
		<-written
	}

	ended := make(chan error, 1)
	go func() { ended <- r.retire(p) }()
	r.awaitStopping(p)
	go func() {
		for range written { // the writer shall go on
		}
	}()
	var reading sync.WaitGroup
	var framed, lined []byte
	var err1, err2 error
	reading.Go(func() { framed, err1 = io.ReadAll(frames) })
	reading.Go(func() { lined, err2 = io.ReadAll(lines) })
	reading.Wait()
	if err := errors.Join(err1, err2); err != nil {
		t.Errorf("a watch does not end in order: %v", err)
	}
	if n, err := wholeFrames(framed); n < names || err != nil {
		t.Errorf("of %d events in protobuf not all are whole: %v", n, err)
	}
	n := 0
	for line := range bytes.Lines(lined) {
		n++
		if !json.Valid(line) || !bytes.HasSuffix(line, []byte("\n")) {
			t.Errorf("an event in JSON is not whole: %d bytes", len(line))
		}
	}
	if n < names {
		t.Errorf("%d events came in JSON", n)
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

const (
	largeBytes = 100 << 10
	// unread events of that size are more than what a client of HTTP/2 lets come before it reads (4
	// MiB with Go's).
	unread = 60
)

// beginWatch begins to watch all ConfigMaps, and returns when there is an answer, with its body.
func (r *rig) beginWatch(p *harness.Proxy, major int, accept string) io.Reader {
	r.Helper()
	cfg := r.through()
	cfg.Host = p.URL()
	if major == 1 {
		cfg.NextProtos = []string{"http/1.1"}
	}
	client := ask.MustNew(r, cfg, 0)
	res, err := client.With("Accept", accept).Open(r.Context(), http.MethodGet, load.ConfigMaps.Path(r.ns)+"?watch=true", nil)
	r.must(err)
	r.Cleanup(func() { _ = res.Body.Close() })
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || res.ProtoMajor != major || got != accept {
		r.Fatalf("the watch got %s over %s in %s", res.Status, res.Proto, got)
	}
	return res.Body
}

// writeLarge changes a large object again and again until stop is called, and tells written of each
// time.
func (r *rig) writeLarge() (written <-chan struct{}, stop func()) {
	r.Helper()
	const name = "large"
	object := r.object(load.ConfigMaps, name)
	object["data"] = map[string]any{"text": strings.Repeat("x", largeBytes)}
	_, err := r.writer.Do(r.Context(), http.MethodPost, load.ConfigMaps.Path(r.ns), object)
	r.must(err)
	ctx, cancel := context.WithCancel(r.Context())
	times, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		defer close(times)
		for {
			if a, err := r.Touch(ctx, r.writer, load.ConfigMaps, r.ns, name); ctx.Err() == nil && (err != nil || a.Code != http.StatusOK) {
				r.Errorf("the large object is not written: %v %s", err, a)
				return
			}
			select {
			case times <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return times, func() {
		cancel()
		<-over
	}
}

// wholeFrames counts the frames of a stream of protobuf. An error is one that is not whole.
func wholeFrames(stream []byte) (n int, err error) {
	frames := protobuf.LengthDelimitedFramer.NewFrameReader(io.NopCloser(bytes.NewReader(stream)))
	buffer, whole := make([]byte, 2*largeBytes), 0
	for {
		size, err := frames.Read(buffer)
		switch {
		case errors.Is(err, io.EOF) && whole == len(stream):
			return n, nil
		case errors.Is(err, io.EOF):
			return n, fmt.Errorf("%d of %d bytes are of whole ones", whole, len(stream))
		case err != nil:
			return n, err
		}
		n++
		whole += 4 + size // the length, and what is that long
	}
}

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
