package limits

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/listproxy/listproxy/test/controlplane"
)

const (
	// headerBound is how long listproxy lets the head of a request be.
	headerBound = 64 << 10
	// perConnection is what listproxy and the chart reckon with for a connection.
	perConnection = 128 << 10
	// unfinished is what they reckon with for all that has come without being a request yet: four times the 32 MiB
	// that are let in.
	unfinished = 128 << 20
	// perStream is the same for a request in flight that nobody reads on, in either direction.
	perStream = 320 << 10
	// settled is for how long what a process takes must not have grown to be the most that it takes.
	settled = 3 * time.Second
)

// heldMemory holds the n that hold opens, and says how much of memory they cost, and whether that is what is
// reckoned with: so much for each, and so much for all together.
func heldMemory(r *rig, n int, what string, each, together int, hold func(i int) error) {
	r.Helper()
	r.must(warm(r))
	before := r.sample()
	begun := time.Now()
	for i := range n {
		r.must(hold(i))
	}
	peak, at := before, time.Now()
	r.until("memory has settled", func() bool {
		if s := r.sample(); s.RSS > peak.RSS {
			peak, at = s, time.Now()
		}
		return time.Since(at) > settled
	})
	more, reckoned := peak.RSS-before.RSS, n*each+together
	r.say("%d %s, opened in %.1f s: %.0f MiB resident, %.0f before; each %.1f KiB; %s connections were closed",
		n, what, at.Sub(begun).Seconds(), peak.RSS/mib, before.RSS/mib, more/float64(n)/1024, r.ended("unfinished"))
	if more > float64(reckoned) {
		r.Errorf("%s: they take %.0f MiB, more than the %d that are reckoned with", what, more/mib, reckoned/mib)
	}
}

// ended is how many connections were ended for a reason, as metrics say.
func (r *rig) ended(reason string) string {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.proxy.AdminURL()+"/metrics", http.NoBody)
	r.must(err)
	res, err := http.DefaultClient.Do(req)
	r.must(err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	r.must(err)
	series := regexp.MustCompile(`(?m)^listproxy_connections_ended_total\{[^}]*port="clients"[^}]*reason="` + reason + `"[^}]*\} (\S+)$`)
	found := series.FindSubmatch(text)
	if found == nil {
		r.Fatal("no metric of ended connections")
	}
	return string(found[1])
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

// TestUnfinishedHandshakes: of the largest first message that crypto/tls takes, without its last byte.
func TestUnfinishedHandshakes(t *testing.T) {
	r := newRig(t)
	const most, record = 65536, 16384
	hello := append([]byte{1, 0, most >> 8 & 0xff, 0}, make([]byte, most-1)...)
	hello[1] = most >> 16
	var records []byte
	for part := hello; len(part) > 0; {
		n := min(record, len(part))
		records = append(records, 22, 3, 1, byte(n>>8), byte(n))
		records, part = append(records, part[:n]...), part[n:]
	}
	heldMemory(r, scale(1000, 100), "unfinished handshakes of 64 KiB", perConnection, unfinished, func(i int) error {
		conn, err := r.bare(i)
		if err != nil {
			return err
		}
		_, _ = conn.Write(records) // it may be closed in the middle
		return nil
	})
}

// TestIdleConnections: they have done their handshake and one request.
func TestIdleConnections(t *testing.T) {
	r := newRig(t)
	heldMemory(r, scale(1000, 100), "idle connections", perConnection, unfinished, func(i int) error {
		conn, err := r.encrypted(i, "http/1.1")
		if err != nil {
			return err
		}
		if _, err = io.WriteString(conn, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1024))
		return err
	})
}

// TestUnfinishedHeaders: as long as they may be, without their end.
func TestUnfinishedHeaders(t *testing.T) {
	const size = headerBound - 2048
	t.Run("HTTP/1.1", func(t *testing.T) {
		r := newRig(t)
		line := "X-A: " + strings.Repeat("a", 1017) + "\r\n"
		head := "GET /version HTTP/1.1\r\nHost: x\r\n" + strings.Repeat(line, size/len(line))
		heldMemory(r, scale(1000, 100), fmt.Sprintf("unfinished headers of %d KiB in lines of 1 KiB, HTTP/1.1", size>>10), perConnection, unfinished, func(i int) error {
			conn, err := r.encrypted(i, "http/1.1")
			if err == nil {
				_, _ = io.WriteString(conn, head) // it may be closed in the middle
			}
			return err
		})
	})
	t.Run("HTTP/1.1, one line", func(t *testing.T) {
		r := newRig(t)
		head := "GET /version HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", size)
		heldMemory(r, scale(1000, 100), fmt.Sprintf("unfinished headers of %d KiB in a line, HTTP/1.1", size>>10), perConnection, unfinished, func(i int) error {
			conn, err := r.encrypted(i, "http/1.1")
			if err == nil {
				_, _ = io.WriteString(conn, head) // it may be closed in the middle
			}
			return err
		})
	})
	t.Run("HTTP/2", func(t *testing.T) {
		r := newRig(t)
		const value = 1000
		heldMemory(r, scale(1000, 100), fmt.Sprintf("unfinished headers of %d KiB, HTTP/2", size>>10), perConnection, unfinished, func(i int) error {
			w, err := r.frames(i, true)
			if err != nil {
				return err
			}
			fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/version"}}
			for i := range size / (value + 64) {
				fields = append(fields, hpack.HeaderField{Name: fmt.Sprintf("x-%03d", i), Value: strings.Repeat("~", value), Sensitive: true})
			}
			_ = w.headers(1, fields, false) // it may be closed in the middle
			return nil
		})
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

// headers writes a header block in frames of 16 KiB; without its end more would follow.
func (w *frameWriter) headers(stream uint32, fields []hpack.HeaderField, end bool) error {
	var block bytes.Buffer
	coder := hpack.NewEncoder(&block)
	for _, f := range fields {
		if err := coder.WriteField(f); err != nil {
			return err
		}
	}
	const frame = 16 << 10
	first := block.Next(frame)
	err := w.WriteHeaders(h2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: end && block.Len() == 0})
	for block.Len() > 0 && err == nil {
		part := block.Next(frame)
		err = w.WriteContinuation(stream, end && block.Len() == 0, part)
	}
	return err
}

// streamsPerConnection is fewer than one connection may have.
const streamsPerConnection = 100

// TestUnreadAnswers: of a big answer that is always the same, on streams with a window of 0.
func TestUnreadAnswers(t *testing.T) {
	n := 400
	r := newRig(t)
	token := plane.Token(controlplane.Admin)
	big := bytes.Repeat([]byte("a"), 4*mib)
	r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
		if !ofCaller(req) || req.URL.Path != "/openapi/v2" {
			return false
		}
		_, _ = w.Write(big)
		return true
	})
	var w *frameWriter
	heldMemory(r, n, "streams of a big answer with a window of 0", perStream, 0, func(i int) (err error) {
		if i%streamsPerConnection == 0 {
			if w, err = r.frames(i, true); err != nil {
				return err
			}
		}
		return w.WriteHeaders(h2.HeadersFrameParam{
			StreamID:      uint32(2*(i%streamsPerConnection) + 1), // #nosec G115 -- a small number
			BlockFragment: requestBlock(http.MethodGet, "/openapi/v2", token), EndHeaders: true, EndStream: true,
		})
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

// TestUnreadUploads: the upstream reads nothing of them.
func TestUnreadUploads(t *testing.T) {
	n := 400
	r := newRig(t)
	r.hop.OnRequest(func(_ http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodPost || !ofCaller(req) {
			return false
		}
		<-req.Context().Done()
		return true
	})
	var w *frameWriter
	heldMemory(r, n, "uploads that the upstream does not read", perStream, 0, func(i int) (err error) {
		if i%streamsPerConnection == 0 {
			if w, err = r.frames(i, false); err != nil {
				return err
			}
		}
		stream := uint32(2*(i%streamsPerConnection) + 1) // #nosec G115 -- a small number
		err = w.WriteHeaders(h2.HeadersFrameParam{
			StreamID:      stream,
			BlockFragment: requestBlock(http.MethodPost, "/api/v1/namespaces/team-a/pods", fmt.Sprint("made-up-", i)), EndHeaders: true,
		})
		// More than a stream's window, which nobody checks before it is written here, ends the stream.
		for range 4 {
			err = errors.Join(err, w.WriteData(stream, false, make([]byte, 16<<10-1)))
		}
		return err
	})
}
