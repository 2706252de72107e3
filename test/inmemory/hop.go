package inmemory

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
)

// Hop is an [http.RoundTripper] between a client and a control plane. Tests make it do what API servers never or rarely do: it
// answers requests itself, holds them back, and sends lines into watches or ends them. It counts requests. Its methods are safe
// for concurrent use. It embeds the control plane, so that a test can write objects by h.Put: watches get these writes from the
// servers.
type Hop struct {
	*ControlPlane
	to http.RoundTripper

	mu        sync.Mutex // guards the following fields
	intercept Intercept
	statuses  map[string]int           // of answers in place of the servers', by "verb path"
	stallEnds map[string]chan struct{} // lists and reads wait until the channel of their path is closed
	requests  map[string]int           // the number of requests, by "verb path"
	revisions map[string][]string      // the resourceVersions of watches, by path
	watches   map[string][]*hopWatch   // by path
	silent    map[string]bool          // the paths in whose watches the hop drops bookmarks of the servers
}

// Intercept returns the time for which the answer to a request is held back, and an answer in place of the servers'. If the
// answer is nil, the servers answer. It is called for one request after another.
type Intercept func(r *http.Request) (hold time.Duration, instead *http.Response)

// NewHop returns a hop to a control plane, in a bubble of testing/synctest. It sends requests with the token of Own,
// listproxy's account. When the test ends, it stops all servers.
func NewHop(t testing.TB, plane *ControlPlane) *Hop {
	t.Helper()
	client, err := rest.HTTPClientFor(plane.Config())
	expect.NoError(t, err)
	t.Cleanup(func() {
		for _, server := range plane.Servers() {
			server.Stop()
		}
		client.CloseIdleConnections()
		time.Sleep(time.Hour) // requests that are on their way end
	})
	return &Hop{
		ControlPlane: plane, to: client.Transport, statuses: map[string]int{}, stallEnds: map[string]chan struct{}{},
		requests: map[string]int{}, revisions: map[string][]string{}, watches: map[string][]*hopWatch{}, silent: map[string]bool{},
	}
}

// Config returns a client's configuration.
func (h *Hop) Config() *rest.Config { return &rest.Config{Host: "https://upstream", Transport: h} }

// RoundTrip implements [http.RoundTripper].
func (h *Hop) RoundTrip(r *http.Request) (*http.Response, error) {
	verb := h.verb(r)
	stallEnds, hold, instead := h.receive(r, verb)
	if stallEnds != nil {
		select {
		case <-stallEnds:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if hold > 0 {
		select {
		case <-time.After(hold):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if instead != nil {
		return instead, nil
	}
	onward := r.Clone(r.Context())
	onward.Close = false // the hop has its own connections, which it keeps: a handshake takes long
	answer, err := h.to.RoundTrip(onward)
	if err == nil && verb == "watch" && answer.StatusCode == http.StatusOK {
		h.follow(r.URL.Path, answer)
	}
	return answer, err
}

// receive counts a request and returns what the hop does with it, in three steps:
//   - If stallEnds is not nil, the hop waits until that channel is closed.
//   - It waits for the time hold.
//   - It returns the answer instead. If that is nil, it lets a server answer.
func (h *Hop) receive(r *http.Request, verb string) (stallEnds <-chan struct{}, hold time.Duration, instead *http.Response) {
	h.mu.Lock()
	defer h.mu.Unlock()
	path := r.URL.Path
	h.requests[verb+" "+path]++
	if verb == "watch" {
		h.revisions[path] = append(h.revisions[path], r.URL.Query().Get("resourceVersion"))
	} else {
		stallEnds = h.stallEnds[path]
	}
	if h.intercept != nil {
		hold, instead = h.intercept(r)
	}
	if status := h.statuses[verb+" "+path]; instead == nil && status != 0 {
		instead = Answer(r, status, StatusOf(status, "")+"\n")
	}
	return stallEnds, hold, instead
}

// verb returns the verb by which requests are counted: list, watch or get.
func (h *Hop) verb(r *http.Request) string {
	if r.URL.Query().Get("watch") != "" {
		return "watch"
	}
	for _, kind := range h.kinds() {
		if _, ok := namespaceOf(r.URL.Path, kind); ok {
			return "list"
		}
	}
	return "get"
}

// Answer returns a response in JSON.
func Answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(body)),
		Request:    r,
	}
}

// hopWatch is a watch that passes a hop.
type hopWatch struct {
	sending sync.Mutex // held while a line is sent
	out     *io.PipeWriter
}

// send sends a whole line. It does nothing once the watch has ended.
func (w *hopWatch) send(line []byte) {
	w.sending.Lock()
	defer w.sending.Unlock()
	_, _ = w.out.Write(line)
}

// follow puts a pipe in place of the body of a watch, and copies the lines of the body into it. So a test can drop lines, send
// lines of its own and end the watch.
func (h *Hop) follow(path string, answer *http.Response) {
	in, out := io.Pipe()
	body, watch := answer.Body, &hopWatch{out: out}
	answer.Body = in
	h.mu.Lock()
	h.watches[path] = append(h.watches[path], watch)
	h.mu.Unlock()
	go func() {
		defer func() { _ = body.Close() }()
		lines := bufio.NewReader(body)
		for {
			line, err := lines.ReadBytes('\n')
			if h.passes(path, line) {
				watch.send(line)
			}
			if err != nil {
				_ = out.CloseWithError(err)
				return
			}
		}
	}()
}

// passes reports whether a line of a watch is sent on.
func (h *Hop) passes(path string, line []byte) bool {
	isBookmark := bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`))
	endsInitial := bytes.Contains(line, []byte("initial-events-end"))
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.silent[path] || !isBookmark || endsInitial
}

// Send sends a line to all watches of path.
func (h *Hop) Send(path, line string) {
	h.mu.Lock()
	watches := h.watches[path]
	h.mu.Unlock()
	for _, watch := range watches {
		watch.send([]byte(line))
	}
}

// Cut breaks off all watches of path.
func (h *Hop) Cut(path string) { h.endWatches(path, io.ErrUnexpectedEOF) }

// End ends all watches of path in order, as at their timeout.
func (h *Hop) End(path string) { h.endWatches(path, io.EOF) }

// endWatches ends all watches of path with an error.
func (h *Hop) endWatches(path string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, watch := range h.watches[path] {
		_ = watch.out.CloseWithError(err)
	}
	delete(h.watches, path)
}

// Silence keeps back the bookmarks of the servers in watches of path, except the one that ends a streaming list.
func (h *Hop) Silence(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent[path] = true
}

// Stall holds back answers to lists and reads of path, until Unstall.
func (h *Hop) Stall(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stallEnds[path] = make(chan struct{})
}

// Unstall ends Stall.
func (h *Hop) Unstall(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.stallEnds[path])
	delete(h.stallEnds, path)
}

// SetIntercept makes intercept see all requests from now on; nil: none.
func (h *Hop) SetIntercept(intercept Intercept) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.intercept = intercept
}

// SetStatus makes the hop answer each "verb path" with an error of this code; 0: the servers answer.
func (h *Hop) SetStatus(status int, verbPaths ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, verbPath := range verbPaths {
		h.statuses[verbPath] = status
	}
}

// Requests returns the number of requests for "verb path".
func (h *Hop) Requests(verbPath string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests[verbPath]
}

// AllRequests returns the number of all requests.
func (h *Hop) AllRequests() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, requests := range h.requests {
		n += requests
	}
	return n
}

// Watched returns the resourceVersions of all watches of path so far.
func (h *Hop) Watched(path string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.revisions[path]...)
}
