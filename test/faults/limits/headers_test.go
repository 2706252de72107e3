package limits

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
)

const (
	// perConnection is what listproxy and the chart reckon with for a connection.
	perConnection = 128 << 10
	// perStream is the same for a request in flight that nobody reads on, in either direction.
	perStream = 320 << 10
	// idleSpare is for what the first of them make listproxy take, once. With a hundred connections
	// all together was 10 MiB.
	idleSpare = 8 << 20
	// still is how often in a row listproxy answers that nothing has moved, before that is
	// believed.
	still = 25
)

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
	r.must(warm(r))
	before := r.sample()
	begun := time.Now()
	for i := range h.n {
		r.must(h.hold(i))
	}
	if h.inPlace != nil {
		r.until("all "+h.what+" are with listproxy", h.inPlace)
	}
	opened := time.Since(begun)
	peak, moved, same := before, int64(-1), 0
	r.until("nothing moves any more", func() bool {
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
	r.say("%d %s, opened in %.1f s: %.0f MiB resident, %.0f before; each %.1f KiB",
		h.n, h.what, opened.Seconds(), peak.RSS/mib, before.RSS/mib, more/float64(h.n)/1024)
	if more > float64(reckoned) {
		r.Errorf("%s: they take %.1f MiB, more than the %.1f that are reckoned with", h.what, more/mib, float64(reckoned)/mib)
	}
}

// bare opens a connection on which everything can be written, from one of several addresses.
func (r *rig) bare(i int) (net.Conn, error) {
	const addresses = 8
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%addresses))}
	conn, err := (&net.Dialer{Timeout: patience, LocalAddr: from}).DialContext(r.Context(), "tcp", r.proxy.Address())
	if err == nil {
		r.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// encrypted opens a connection of TLS.
func (r *rig) encrypted(i int, protocol string) (net.Conn, error) {
	conn, err := r.bare(i)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(r.proxy.CA())
	client := tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12})
	return client, client.HandshakeContext(r.Context())
}

// TestIdleConnections: they have done their handshake and one request.
func TestIdleConnections(t *testing.T) {
	harness.Long(t)
	r := newRig(t)
	heldMemory(r, holding{
		n: 100, what: "idle connections", each: perConnection, together: idleSpare,
		hold: func(i int) error {
			conn, err := r.encrypted(i, "http/1.1")
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

// frameWriter writes HTTP/2 by hand.
type frameWriter struct {
	*h2.Framer
	conn net.Conn
}

// frames opens a connection of HTTP/2; with a window of 0 no answer comes that has a body.
func (r *rig) frames(i int, closed bool) (*frameWriter, error) {
	conn, err := r.encrypted(i, "h2")
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, h2.ClientPreface); err != nil {
		return nil, err
	}
	w := &frameWriter{h2.NewFramer(conn, conn), conn}
	w.AllowIllegalWrites = true
	var settings []h2.Setting
	if closed {
		settings = append(settings, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
	}
	if err := w.WriteSettings(settings...); err != nil {
		return nil, err
	}
	return w, nil
}

// streamsPerConnection is fewer than one connection may have.
const streamsPerConnection = 100

// TestUnreadAnswers: of a big answer that is always the same, on streams with a window of 0.
func TestUnreadAnswers(t *testing.T) {
	harness.Long(t)
	r := newRig(t)
	token := plane.Token(controlplane.Admin)
	var answering, sent atomic.Int64
	r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
		if !ofCaller(req) || req.URL.Path != "/openapi/v2" {
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
	var w *frameWriter
	heldMemory(r, holding{
		n: n, what: "streams of a big answer with a window of 0", each: perStream,
		inPlace: func() bool { return answering.Load() == n }, moved: sent.Load,
		hold: func(i int) (err error) {
			if i%streamsPerConnection == 0 {
				if w, err = r.frames(i, true); err != nil {
					return err
				}
			}
			return w.WriteHeaders(h2.HeadersFrameParam{
				StreamID:      uint32(2*(i%streamsPerConnection) + 1), // #nosec G115 -- a small number
				BlockFragment: requestBlock(http.MethodGet, "/openapi/v2", token), EndHeaders: true, EndStream: true,
			})
		},
	})
}

// requestBlock is the header of a request, without an index of its fields.
func requestBlock(method, path, token string) []byte {
	var block bytes.Buffer
	coder := hpack.NewEncoder(&block)
	coder.SetMaxDynamicTableSize(0)
	for _, f := range [][2]string{
		{":method", method}, {":scheme", "https"}, {":authority", "x"}, {":path", path}, {"authorization", "Bearer " + token},
	} {
		_ = coder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
	}
	return block.Bytes()
}
