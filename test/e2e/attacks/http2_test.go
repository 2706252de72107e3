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
	// attackStream is the stream of the attack.
	attackStream uint32 = 1
	// followerStream is the stream of the follower, an innocent request without credentials that is sent after the attack. It
	// must be answered as if there had been no attack. An attack with several streams has 1, 3, 5 and so on, below 99.
	followerStream uint32 = 99

	// window is larger than any answer, so that no answer waits for a WINDOW_UPDATE.
	window = 16 << 20
	// endStream and moreFollows are values of the parameter end: whether a frame is the last of a request.
	endStream, moreFollows = true, false
)

// A field is a header field of HTTP/2, or a pseudo-header such as :path. Neither name nor value is checked before it is
// written.
type field struct{ name, value string }

// String returns a part of a test's name.
func (f field) String() string { return fmt.Sprintf("%.40q=%.80q", f.name, f.value) }

// wire is one HTTP/2 connection on which anything can be written. Errors of writing are ignored: a server may stop reading
// early, and its answer then says why.
type wire struct {
	mu      sync.Mutex // guards writing, encoded and opened
	framer  *h2.Framer
	fill    *strings.Replacer // replaces placeholders such as {host}
	encoded bytes.Buffer      // into which encoder writes
	encoder *hpack.Encoder
	opened  map[uint32]bool // the streams that have a request
}

// encode returns the encoded header block of the fields. The caller holds mu.
func (w *wire) encode(fields []field) []byte {
	w.encoded.Reset()
	for _, f := range fields {
		_ = w.encoder.WriteField(hpack.HeaderField{Name: w.fill.Replace(f.name), Value: w.fill.Replace(f.value)})
	}
	return bytes.Clone(w.encoded.Bytes())
}

// writeHeaders writes a header block or trailers, in a HEADERS frame and as many CONTINUATION frames as needed.
func (w *wire) writeHeaders(stream uint32, end bool, fields ...field) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened[stream] = true
	const maxFrameSize = 16 << 10 // the least that every server accepts
	block := w.encode(fields)
	part := block[:min(maxFrameSize, len(block))]
	block = block[len(part):]
	_ = w.framer.WriteHeaders(h2.HeadersFrameParam{
		StreamID: stream, BlockFragment: part, EndStream: end, EndHeaders: len(block) == 0,
	})
	for len(block) > 0 {
		part = block[:min(maxFrameSize, len(block))]
		block = block[len(part):]
		_ = w.framer.WriteContinuation(stream, len(block) == 0, part)
	}
}

// writeData writes a part of the attack's body, in one DATA frame.
func (w *wire) writeData(end bool, body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.framer.WriteData(attackStream, end, []byte(body))
}

// request returns the header block of a GET by the attack's user, with more fields at the end.
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

// withField replaces the field that has the name of other, and returns the fields.
func withField(fields []field, other field) []field {
	for i := range fields {
		if fields[i].name == other.name {
			fields[i].value = other.value
		}
	}
	return fields
}

// withoutField returns the fields without the one of that name.
func withoutField(fields []field, name string) []field {
	return slices.DeleteFunc(fields, func(f field) bool { return f.name == name })
}

// sendHTTP2 writes the attack and the follower on one connection, and reads until both are answered or the connection ends.
func sendHTTP2(ctx context.Context, server endpoint, who login, a attack, fill *strings.Replacer) (outcome, error) {
	conn, err := server.dial(ctx, http2, who.certificate)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = conn.Close() }()
	w := &wire{framer: h2.NewFramer(conn, conn), fill: fill, opened: map[uint32]bool{followerStream: true}}
	w.framer.AllowIllegalWrites = true
	w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.encoder = hpack.NewEncoder(&w.encoded)
	_, prefaceErr := io.WriteString(conn, h2.ClientPreface)
	settingsErr := w.framer.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: window})
	const connection = 0 // the stream that stands for the whole connection
	if err := errors.Join(prefaceErr, settingsErr, w.framer.WriteWindowUpdate(connection, window)); err != nil {
		return outcome{}, err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		a.writeHTTP2(w)
		w.writeHeaders(followerStream, endStream, field{":method", http.MethodGet}, field{":scheme", "https"},
			field{":authority", "{host}"}, field{":path", podsOfA},
			field{"user-agent", "follower"}, field{"audit-id", "{id}.follower"})
	}()
	out := w.read()
	_ = conn.Close()
	<-written
	return out, nil
}

// read reads frames until every stream in opened has ended, or the connection has. It returns the answers in the order of
// streams.
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
			out.End = cmp.Or(ending(err), closedEarly)
			break
		}
		switch f := frame.(type) {
		case *h2.SettingsFrame:
			if !f.IsAck() {
				w.acknowledge()
			}
		case *h2.MetaHeadersFrame:
			answerOf(f.StreamID).addHeaders(f)
			done[f.StreamID] = f.StreamEnded()
		case *h2.DataFrame:
			answerOf(f.StreamID).Body += string(f.Data())
			done[f.StreamID] = f.StreamEnded()
		case *h2.RSTStreamFrame:
			// After the end of an answer, the server may reset the stream because of data that still comes.
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

// acknowledge acknowledges the server's settings.
func (w *wire) acknowledge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.framer.WriteSettingsAck()
}

// finished reports whether every stream in opened is done.
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

// addHeaders adds a header block to the answer: the header if it has a :status, and otherwise the trailers.
func (a *answer) addHeaders(f *h2.MetaHeadersFrame) {
	status, err := strconv.Atoi(f.PseudoValue("status"))
	if err != nil {
		a.Trailer = headerOf(f)
		return
	}
	a.Status, a.Header = status, headerOf(f)
}

// headerOf returns the fields of a header block without pseudo-headers.
func headerOf(f *h2.MetaHeadersFrame) http.Header {
	header := http.Header{}
	for _, field := range f.RegularFields() {
		header.Add(field.Name, field.Value)
	}
	return header
}
