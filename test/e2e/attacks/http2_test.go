package attacks

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// attackStream is where the attack's own request is.
	attackStream uint32 = 1
	// followerStream leaves room for an attack with more streams.
	followerStream uint32 = 99

	window = 16 << 20 // so that no answer waits for leave to come
)

// A field is a header field of HTTP/2, or a pseudo-header. Nothing is checked.
type field [2]string

// String is for names.
func (f field) String() string { return fmt.Sprintf("%.40q=%.80q", f[0], f[1]) }

// wire is one HTTP/2 connection, to be abused. Errors of writing are left out: a server that has
// heard enough does not listen, and what it has said is then in what it sent.
type wire struct {
	mu     sync.Mutex // of writing
	framer *h2.Framer
	fill   *strings.Replacer
	block  bytes.Buffer
	coder  *hpack.Encoder
	opened map[uint32]bool
}

// fields encodes a header block.
func (w *wire) fields(fields []field) []byte {
	w.block.Reset()
	for _, f := range fields {
		_ = w.coder.WriteField(hpack.HeaderField{Name: w.fill.Replace(f[0]), Value: w.fill.Replace(f[1])})
	}
	return bytes.Clone(w.block.Bytes())
}

// headers writes a header block, or trailers, in one frame or as many as it takes.
func (w *wire) headers(stream uint32, end bool, fields ...field) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened[stream] = true
	const most = 16 << 10
	block := w.fields(fields)
	part := block[:min(most, len(block))]
	block = block[len(part):]
	_ = w.framer.WriteHeaders(h2.HeadersFrameParam{
		StreamID: stream, BlockFragment: part, EndStream: end, EndHeaders: len(block) == 0,
	})
	for len(block) > 0 {
		part = block[:min(most, len(block))]
		block = block[len(part):]
		_ = w.framer.WriteContinuation(stream, len(block) == 0, part)
	}
}

// data writes a part of the attack's body.
func (w *wire) data(end bool, body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.framer.WriteData(attackStream, end, []byte(body))
}

// request is a GET of the attack's user, with fields of its own behind.
func request(target string, more ...field) []field {
	return append([]field{
		{":method", http.MethodGet},
		{":scheme", "https"},
		{":authority", "{host}"},
		{":path", target},
		{"user-agent", "attacker"},
		{"audit-id", "{id}.1"},
		{"authorization", "Bearer {token}"},
	}, more...)
}

// sendHTTP2 writes the attack and the follower, and reads until both are answered or the connection
// ends.
func sendHTTP2(ctx context.Context, d door, who login, a attack, fill *strings.Replacer) (outcome, error) {
	conn, err := d.dial(ctx, http2, who.certificate)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = conn.Close() }()
	w := &wire{framer: h2.NewFramer(conn, conn), fill: fill, opened: map[uint32]bool{followerStream: true}}
	w.framer.AllowIllegalWrites = true
	w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.coder = hpack.NewEncoder(&w.block)
	_, err = io.WriteString(conn, h2.ClientPreface)
	if err := errors.Join(
		err, w.framer.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: window}), w.framer.WriteWindowUpdate(0, window),
	); err != nil {
		return outcome{}, err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		a.http2(w)
		w.headers(followerStream, true, field{":method", http.MethodGet}, field{":scheme", "https"},
			field{":authority", "{host}"}, field{":path", podsOfA},
			field{"user-agent", "follower"}, field{"audit-id", "{id}.follower"})
	}()
	out := w.read()
	_ = conn.Close()
	<-written
	return out, nil
}

// read reads until every stream that was opened is done.
func (w *wire) read() outcome {
	var out outcome
	answers := map[uint32]*answer{}
	done := map[uint32]bool{}
	answerOf := func(stream uint32) *answer {
		if answers[stream] == nil {
			answers[stream] = &answer{Stream: stream}
		}
		return answers[stream]
	}
	for out.End == "" && !w.finished(done) {
		frame, err := w.framer.ReadFrame()
		if err != nil {
			out.End = cmp.Or(ending(err), "closed")
			break
		}
		switch f := frame.(type) {
		case *h2.SettingsFrame:
			if !f.IsAck() {
				w.acknowledge()
			}
		case *h2.MetaHeadersFrame:
			answerOf(f.StreamID).take(f)
			done[f.StreamID] = f.StreamEnded()
		case *h2.DataFrame:
			answerOf(f.StreamID).Body += string(f.Data())
			done[f.StreamID] = f.StreamEnded()
		case *h2.RSTStreamFrame:
			// A stream that is done may be reset for what is still sent on it.
			if !done[f.StreamID] {
				answerOf(f.StreamID).Reset = f.ErrCode.String()
			}
			done[f.StreamID] = true
		case *h2.GoAwayFrame:
			if f.ErrCode != h2.ErrCodeNo {
				out.End = f.ErrCode.String()
			}
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(answers)) {
		out.Answers = append(out.Answers, *answers[stream])
	}
	return out
}

func (w *wire) acknowledge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.framer.WriteSettingsAck()
}

func (w *wire) finished(done map[uint32]bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for stream := range w.opened {
		if !done[stream] {
			return false
		}
	}
	return true
}

// take takes headers or trailers.
func (a *answer) take(f *h2.MetaHeadersFrame) {
	status, err := strconv.Atoi(f.PseudoValue("status"))
	if err != nil {
		a.Trailer = headerOf(f)
		return
	}
	a.Status, a.Header = status, headerOf(f)
}

func headerOf(f *h2.MetaHeadersFrame) http.Header {
	header := http.Header{}
	for _, field := range f.RegularFields() {
		header.Add(field.Name, field.Value)
	}
	return header
}
