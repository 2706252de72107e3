package hop

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
)

// Odd lists unusual but legal behaviours of API servers. Other implementations of the Kubernetes API have some of them. A hop
// with an Odd makes its upstream look as if it behaved so: it changes what passes. The zero Odd changes nothing.
type Odd struct {
	// These change answers to all requests.

	// ClockRevisions replaces revisions 1, 2, 3, … by times in nanoseconds, of nineteen digits. Two neighbours are about a
	// quarter of an hour apart.
	ClockRevisions bool
	// UnknownFields adds an unknown header X-Future to each answer, and an unknown field to each object's metadata.
	UnknownFields bool
	// JSONOnly refuses protobuf.
	JSONOnly bool

	// These change only answers to listproxy's [Own] requests, since they concern a client that keeps a state.

	// LateBookmarks loses about half of the bookmarks. One in four comes three seconds late, and so do the events after it.
	LateBookmarks bool
	// NoInitialEnd loses the bookmark after the initial events.
	NoInitialEnd bool
	// RevisionFalls makes the current revision lower than it was, for a quarter of a second in each 1.75 seconds.
	RevisionFalls bool
	// AlwaysGzip compresses all answers except watches, whatever Accept-Encoding says.
	AlwaysGzip bool

	// These change connections.

	// HTTP1 turns HTTP/2 off.
	HTTP1 bool
	// Streams is the number of concurrent requests on a connection of HTTP/2; 0 is the default.
	Streams int
	// IdleTimeout is the time after which a connection without bytes is reset; 0 is never.
	IdleTimeout time.Duration
}

// OfCallers returns only those behaviours of o that other clients than listproxy notice in answers.
func (o Odd) OfCallers() Odd {
	return Odd{ClockRevisions: o.ClockRevisions, UnknownFields: o.UnknownFields, JSONOnly: o.JSONOnly}
}

// With ClockRevisions, revision n of the upstream becomes epoch + n*tick + offset, in nanoseconds. The offset is
// n*offsetStep%maxOffset, so that the digits at the end look random. It is below a second, and a tick is a thousand seconds.
// For example, revision 3 becomes 1_700_003_000_000_023_757. The two numbers of the offset are primes.
const (
	epoch      = 1_700_000_000_000_000_000
	tick       = 1_000_000_000_000
	offsetStep = 7919
	maxOffset  = 999_999_937
)

// revision returns the revision that clients of the hop see in place of a revision of the upstream.
func (o Odd) revision(text string) string {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || !o.ClockRevisions {
		return text
	}
	offset := n * offsetStep % maxOffset
	return strconv.FormatUint(epoch+n*tick+offset, 10)
}

// upstreamRevision is the reverse of revision. Clients may also send other times: any time from tick n to the next becomes n.
func (o Odd) upstreamRevision(text string) string {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < epoch || !o.ClockRevisions {
		return text
	}
	return strconv.FormatUint((n-epoch)/tick, 10)
}

// changeRequest changes a request on its way to the upstream.
func (o Odd) changeRequest(out *http.Request) {
	// First the revisions in parameters, then those inside continue tokens.
	query := replaceAt([]byte(out.URL.RawQuery), revisionInQuery, o.upstreamRevision)
	out.URL.RawQuery = string(replaceAt(query, continueToken, changeToken(o.upstreamRevision)))
	accept := strings.Join(out.Header.Values("Accept"), ",")
	if !o.JSONOnly || !strings.Contains(strings.ToLower(accept), "protobuf") {
		return
	}
	clauses := slices.DeleteFunc(strings.Split(accept, ","), func(clause string) bool {
		return strings.Contains(strings.ToLower(clause), "protobuf")
	})
	if len(clauses) == 0 {
		clauses = []string{"application/none"} // which the upstream refuses
	}
	out.Header.Set("Accept", strings.Join(clauses, ","))
}

// changeAnswer changes an answer that is not a watch.
func (o Odd) changeAnswer(resp *http.Response) error {
	r := resp.Request
	falls := o.fallsNow(r)
	mustZip := o.AlwaysGzip && Own(r)
	if !o.ClockRevisions && !o.UnknownFields && !falls && !mustZip {
		return nil
	}
	wasZipped := resp.Header.Get("Content-Encoding") == "gzip"
	from := io.Reader(resp.Body)
	if wasZipped {
		from = events.Unzip(resp.Body)
	}
	body, err := io.ReadAll(from)
	if err != nil || len(body) == 0 {
		return err
	}
	_ = resp.Body.Close()
	change := o.revision
	if falls {
		change = func(text string) string {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil || n == 0 {
				return o.revision(text)
			}
			lower := n - 1 - n%16 // by 1 to 16
			return o.revision(strconv.FormatUint(lower, 10))
		}
	}
	body = o.changeBody(resp.Header.Get("Content-Type"), body, change)
	if wasZipped || mustZip {
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		_, _ = zip.Write(body)
		_ = zip.Close()
		body = b.Bytes()
		resp.Header.Set("Content-Encoding", "gzip")
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// fallsNow reports whether a request gets an older revision: a revision probe during 250 of each 1750 milliseconds.
func (o Odd) fallsNow(r *http.Request) bool {
	isProbe := Own(r) && strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return o.RevisionFalls && isProbe && time.Now().UnixMilli()%1750 < 250
}

// changeEvent changes, loses or delays an event of a watch. frame has the event's bytes. If changeEvent returns no bytes, the
// event is lost.
func (o Odd) changeEvent(r *http.Request, contentType string, frame []byte) (_ []byte, delay time.Duration) {
	if !bytes.Contains(frame[:min(len(frame), 32)], []byte("BOOKMARK")) { // the type is at the beginning
		return o.changeFrame(contentType, frame), 0
	}
	endsInitial := bytes.Contains(frame, []byte(metav1.InitialEventsAnnotationKey))
	if Own(r) && endsInitial && o.NoInitialEnd {
		return nil, 0
	}
	if Own(r) && !endsInitial && o.LateBookmarks {
		switch rand.IntN(4) { // #nosec G404 -- no secret
		case 0, 1: // lost
			return nil, 0
		case 2: // late
			delay = 3 * time.Second
		}
	}
	bookmarks := o
	bookmarks.UnknownFields = false // no bookmark has any
	return bookmarks.changeFrame(contentType, frame), delay
}

// changeFrame returns the bytes of an event with changed revisions and unknown fields.
func (o Odd) changeFrame(contentType string, frame []byte) []byte {
	if !o.ClockRevisions && !o.UnknownFields {
		return frame
	}
	if !strings.HasPrefix(contentType, ask.Protobuf) {
		return o.changeBody(contentType, frame, o.revision)
	}
	var e metav1.WatchEvent
	must(e.Unmarshal(frame[4:])) // behind the frame's length
	return events.ProtobufFrame(watch.EventType(e.Type), o.changeProtobuf(e.Object.Raw, o.revision))
}
