package limits

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

const (
	mib = 1 << 20
	// perConnection is what listproxy and the chart reckon with for a connection.
	perConnection = 128 << 10
	// perStream is the same for a request in flight that nobody reads on, in either direction.
	perStream = 320 << 10
	// perWatch is four times what a forwarded watch takes.
	perWatch = 256 << 10
	// idleSpare is for what the first of them make listproxy take, once. With a hundred connections
	// all together was 10 MiB.
	idleSpare = 8 << 20
	// still is how often in a row listproxy answers that nothing has moved, before that is
	// believed.
	still = 25
	// streamsPerConnection is fewer than one connection may have.
	streamsPerConnection = 100
	// patience ends a wait for what must come; nothing passes because of it.
	patience = 5 * time.Minute
)

var (
	plane  *controlplane.ControlPlane
	binary string
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) (err error) {
		if testing.Short() { // all that needs it is long
			return nil
		}
		if binary, err = harness.BuildPlainProxy(s.Context()); err != nil {
			return err
		}
		plane, err = s.ControlPlane(controlplane.Options{})
		return err
	}})
}

// rig is a listproxy behind a hop.
type rig struct {
	*testing.T
	hop   *hop.Hop
	proxy *harness.Proxy
}

// newRig runs a listproxy, without the log of requests, which is kept in memory here. What is made
// once has been made.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, hop: hop.Run(t, plane.URL(), plane.CA())}
	r.proxy = harness.RunProxy(t, harness.ProxyOptions{
		Upstream: r.hop.RESTConfig(plane.RESTConfig(controlplane.Feed)), Binary: binary, Args: []string{"--log-level", "info"},
	})
	via := ask.MustNew(r, r.proxy.RESTConfig(plane.RESTConfig(controlplane.Admin)), patience)
	r.must(poll.Retry(t.Context(), "a list from memory", func() error {
		a, err := via.Get(t.Context(), "/api/v1/configmaps?"+ask.AnyVersion)
		if err == nil && !a.FromMemory() {
			err = errors.New(a.String())
		}
		return err
	}))
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	expect.NoError(r, err)
}

// sample is what listproxy takes now.
func (r *rig) sample() soak.Sample {
	r.Helper()
	s, err := soak.Take(r.Context(), r.proxy.AdminURL()+"/metrics")
	r.must(err)
	return s
}

// holding is what heldMemory has opened, and what that may cost: so much for each, and so much for
// all together.
type holding struct {
	n              int
	what           string
	each, together int
	hold           func(i int) error
	// inPlace reports whether all of it is with listproxy. nil: when hold returns it is.
	inPlace func() bool
	// moved counts what goes on after that. nil: nothing that is known here.
	moved func() int64
}

// heldMemory holds them, and says how much of memory they cost, and whether that is what is
// reckoned with.
func heldMemory(r *rig, h holding) {
	r.Helper()
	before := r.sample()
	for i := range h.n {
		r.must(h.hold(i))
	}
	if h.inPlace != nil {
		poll.Until(r, patience, "all "+h.what+" are with listproxy", func() bool { return h.inPlace() || r.Failed() })
	}
	peak, moved, same := before, int64(-1), 0
	poll.Until(r, patience, "nothing moves any more", func() bool {
		s, now := r.sample(), int64(0)
		if h.moved != nil {
			now = h.moved()
		}
		same++
		if s.RSS > peak.RSS {
			peak, same = s, 0
		}
		if now != moved {
			moved, same = now, 0
		}
		return same >= still
	})
	more, reckoned := peak.RSS-before.RSS, h.n*h.each+h.together
	r.Logf("%d %s: %.0f MiB resident, %.0f before; each %.1f KiB", h.n, h.what, peak.RSS/mib, before.RSS/mib, more/float64(h.n)/1024)
	if more > float64(reckoned) {
		r.Errorf("%s: they take %.1f MiB, more than the %.1f that are reckoned with", h.what, more/mib, float64(reckoned)/mib)
	}
}

// dial opens a connection of TLS, from one of several addresses.
func (r *rig) dial(i int, protocol string) (net.Conn, error) {
	const addresses = 8
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(r.proxy.CA())
	dialer := &tls.Dialer{
		NetDialer: &net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%addresses))}},
		Config:    &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12},
	}
	conn, err := dialer.DialContext(r.Context(), "tcp", r.proxy.Address())
	if err == nil {
		r.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// TestIdleConnections: they have done their handshake and one request.
func TestIdleConnections(t *testing.T) {
	harness.Long(t)
	r := newRig(t)
	heldMemory(r, holding{
		n: 100, what: "idle connections", each: perConnection, together: idleSpare,
		hold: func(i int) error {
			conn, err := r.dial(i, "http/1.1")
			if err != nil {
				return err
			}
			if _, err = io.WriteString(conn, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				return err
			}
			_, err = conn.Read(make([]byte, 1024))
			return err
		},
	})
}

// frames opens a connection of HTTP/2, with a window of 0: no answer comes that has a body.
func (r *rig) frames(i int) (*h2.Framer, error) {
	conn, err := r.dial(i, "h2")
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, h2.ClientPreface); err != nil {
		return nil, err
	}
	w := h2.NewFramer(conn, conn)
	return w, w.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
}

// TestUnreadAnswers: of a big answer that is always the same, on streams with a window of 0.
func TestUnreadAnswers(t *testing.T) {
	harness.Long(t)
	r := newRig(t)
	// The header of a request, without an index of its fields.
	var block bytes.Buffer
	coder := hpack.NewEncoder(&block)
	coder.SetMaxDynamicTableSize(0)
	for _, f := range [][2]string{
		{":method", http.MethodGet},
		{":scheme", "https"},
		{":authority", "x"},
		{":path", "/openapi/v2"},
		{"authorization", "Bearer " + plane.Token(controlplane.Admin)},
	} {
		r.must(coder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	var answering, sent atomic.Int64
	r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
		if hop.Own(req) || req.URL.Path != "/openapi/v2" {
			return false
		}
		answering.Add(1)
		part := bytes.Repeat([]byte("a"), 4<<10)
		for range 4 * mib / len(part) {
			if _, err := w.Write(part); err != nil {
				break
			}
			sent.Add(1)
		}
		return true
	})
	const n = 400
	var w *h2.Framer
	heldMemory(r, holding{
		n: n, what: "streams of a big answer with a window of 0", each: perStream,
		inPlace: func() bool { return answering.Load() == n }, moved: sent.Load,
		hold: func(i int) (err error) {
			if i%streamsPerConnection == 0 {
				if w, err = r.frames(i); err != nil {
					return err
				}
			}
			return w.WriteHeaders(h2.HeadersFrameParam{
				StreamID:      uint32(2*(i%streamsPerConnection) + 1), // #nosec G115 -- a small number
				BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true,
			})
		},
	})
}

// TestForwardedWatches: so many are open at the same time, and all of them hear an event.
func TestForwardedWatches(t *testing.T) {
	harness.Long(t)
	r := newRig(t)
	tell := make(chan struct{})
	r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Query().Get("labelSelector") != "limits" {
			return false
		}
		w.Header().Set("Content-Type", ask.JSON)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tell:
			_, _ = io.WriteString(w, `{"type":"BOOKMARK"}`+"\n")
		case <-req.Context().Done():
		}
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var open, told atomic.Int64
	var client *ask.Client
	const n = 1000
	heldMemory(r, holding{
		n: n, what: "forwarded watches", each: perWatch,
		inPlace: func() bool { return open.Load() == n },
		hold: func(i int) error {
			if i%streamsPerConnection == 0 {
				// Not a storm: that is another limit.
				poll.Until(r, patience, "the watches before are open", func() bool { return int(open.Load()) > i-5*streamsPerConnection || r.Failed() })
				cfg := r.proxy.RESTConfig(plane.RESTConfig(controlplane.Admin))
				cfg.Proxy = http.ProxyFromEnvironment // of its own: client-go shares connections otherwise
				client = ask.MustNew(r, cfg, 0)
			}
			via := client
			all.Go(func() {
				resp, err := via.Open(ctx, http.MethodGet, "/api/v1/configmaps?labelSelector=limits&watch=true", nil)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				defer resp.Body.Close()
				open.Add(1)
				switch body, err := io.ReadAll(resp.Body); {
				case strings.Contains(string(body), "BOOKMARK"):
					told.Add(1)
				case ctx.Err() == nil:
					t.Errorf("%s, %v: %s", resp.Status, err, body)
				}
			})
			return nil
		},
	})
	close(tell)
	poll.Until(r, patience, "all watches have heard", func() bool { return told.Load() == n || r.Failed() })
}
