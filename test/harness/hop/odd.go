package hop

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
)

// Odd says in what a hop makes its upstream odd, as API servers of other control planes are. What callers
// would notice is true for everybody; what only concerns who keeps a state, for listproxy's [Own] requests.
type Odd struct {
	// Clock: revisions are nanoseconds, of nineteen digits, about a quarter of an hour from one to the next.
	Clock bool
	// Unknown: each answer has a header X-Future, and each object's metadata a field, that nobody knows.
	Unknown bool
	// JSONOnly: protobuf is not acceptable.
	JSONOnly bool

	// LateBookmarks (own): every other bookmark is lost, and one in four comes three seconds late, and so
	// does what is behind them.
	LateBookmarks bool
	// NoEnd (own): the bookmark behind the initial events never comes.
	NoEnd bool
	// Falls (own): for a quarter of a second now and then, the current revision is lower than it was.
	Falls bool
	// Zipped (own): answers, but for watches, come compressed, whatever was asked for.
	Zipped bool

	// HTTP1: there is no HTTP/2.
	HTTP1 bool
	// Streams is how many requests a connection of HTTP/2 takes at a time; 0: as usual.
	Streams int
	// Idle is after which silence a connection is reset; 0: never.
	Idle time.Duration
}

// OfCallers returns o without what callers would not notice in the answers.
func (o Odd) OfCallers() Odd { return Odd{Clock: o.Clock, Unknown: o.Unknown, JSONOnly: o.JSONOnly} }

// The clock: revision 0 would be at epoch. What is between two ticks belongs to the one before.
const epoch, tick, uneven = 1_700_000_000_000_000_000, 1_000_000_000_000, 999_999_937

func (o Odd) revision(text string) string {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || !o.Clock {
		return text
	}
	return strconv.FormatUint(epoch+n*tick+n*7919%uneven, 10)
}

func (o Odd) upstreamRevision(text string) string {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < epoch || !o.Clock {
		return text
	}
	return strconv.FormatUint((n-epoch)/tick, 10)
}

// Where revisions are: before and behind them is what stays. Tokens are base64, and have theirs within. What is looked
// for in long bodies begins with a word, for which Go looks quickly.
var (
	inQueries  = regexp.MustCompile(`((?:^|&)resourceVersion=)(\d+)()`)
	inObjects  = regexp.MustCompile(`(resourceVersion"?: ?")(\d+)(")`)
	inMessages = regexp.MustCompile(`(resource version: |current: |too old resource version: \d+ \()(\d+)()`)
	inTokens   = regexp.MustCompile(`("rv":)(\d+)()`)
	tokens     = regexp.MustCompile(`(continue(?:=|"?: ?"?))([\w-]{8,})()`)
	metadata   = regexp.MustCompile(`"metadata":( ?)\{(\s*)"(\w+)`)
)

// within changes what stands at a place.
func within(b []byte, place *regexp.Regexp, change func(string) string) []byte {
	return place.ReplaceAllFunc(b, func(found []byte) []byte {
		parts := place.FindSubmatch(found)
		return []byte(string(parts[1]) + change(string(parts[2])) + string(parts[3]))
	})
}

func token(change func(string) string) func(string) string {
	return func(text string) string {
		read, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return text
		}
		return base64.RawURLEncoding.EncodeToString(within(read, inTokens, change))
	}
}

// request makes a request one for the upstream.
func (o Odd) request(out *http.Request) {
	query := within([]byte(out.URL.RawQuery), inQueries, o.upstreamRevision)
	out.URL.RawQuery = string(within(query, tokens, token(o.upstreamRevision)))
	accept := strings.Join(out.Header.Values("Accept"), ",")
	if !o.JSONOnly || !strings.Contains(strings.ToLower(accept), "protobuf") {
		return
	}
	left := slices.DeleteFunc(strings.Split(accept, ","), func(clause string) bool {
		return strings.Contains(strings.ToLower(clause), "protobuf")
	})
	if len(left) == 0 {
		left = []string{"application/none"} // which the upstream refuses
	}
	out.Header.Set("Accept", strings.Join(left, ","))
}

// body changes what comes from the upstream, by its type.
func (o Odd) body(contentType string, b []byte, change func(string) string) []byte {
	if strings.HasPrefix(contentType, ask.Protobuf) {
		return o.inProtobuf(b, change)
	}
	b = within(within(b, inObjects, change), tokens, token(change))
	if bytes.Contains(b, []byte("resource version: ")) {
		b = within(b, inMessages, change)
	}
	if o.Unknown {
		b = metadata.ReplaceAllFunc(b, func(found []byte) []byte {
			if first := string(metadata.FindSubmatch(found)[3]); first == "resourceVersion" || first == "continue" {
				return found // of a list or a bookmark
			}
			return metadata.ReplaceAll(found, []byte(`"metadata":${1}{$2"future":${1}true,$2"$3`))
		})
	}
	return b
}

// inProtobuf does the same to an object or list. Every kind has its metadata in field 1, and every list its
// items in field 2; a Status has its message in 3.
func (o Odd) inProtobuf(b []byte, change func(string) string) []byte {
	var u runtime.Unknown
	if !bytes.HasPrefix(b, magic) || u.Unmarshal(b[len(magic):]) != nil {
		return b
	}
	const ofObjects = 6
	// Fields of metadata: those of a list, or of an object.
	meta := func(revision, continues protowire.Number) func([]byte) []byte {
		return func(b []byte) []byte {
			b = edit(b, func(n protowire.Number, b []byte) []byte {
				switch n {
				case revision:
					return []byte(change(string(b)))
				case continues:
					return []byte(token(change)(string(b)))
				}
				return b
			})
			if o.Unknown && revision == ofObjects {
				b = protowire.AppendString(protowire.AppendTag(b, 1000, protowire.BytesType), "future")
			}
			return b
		}
	}
	ofList, ofObject := meta(2, 3), meta(ofObjects, 0)
	list := strings.HasSuffix(u.Kind, "List")
	u.Raw = edit(u.Raw, func(n protowire.Number, b []byte) []byte {
		switch {
		case n == 1 && (list || u.Kind == "Status"):
			return ofList(b)
		case n == 1:
			return ofObject(b)
		case n == 2 && list:
			return edit(b, func(n protowire.Number, b []byte) []byte {
				if n == 1 {
					return ofObject(b)
				}
				return b
			})
		case n == 3 && u.Kind == "Status":
			return within(b, inMessages, change)
		}
		return b
	})
	encoded, err := u.Marshal()
	must(err)
	return append(bytes.Clone(magic), encoded...)
}

// magic is what objects in protobuf begin with.
var magic = []byte("k8s\x00")

// edit changes the fields of a message that have a length.
func edit(b []byte, change func(protowire.Number, []byte) []byte) (edited []byte) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		m := n + max(0, protowire.ConsumeFieldValue(number, kind, b[max(0, n):]))
		if n < 0 || m == n && kind != protowire.BytesType {
			panic(fmt.Sprintf("not a message: %q", b))
		}
		if kind == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(b[n:])
			edited = protowire.AppendBytes(append(edited, b[:n]...), change(number, content))
		} else {
			edited = append(edited, b[:m]...)
		}
		b = b[m:]
	}
	return edited
}

// answer changes an answer that is no watch.
func (o Odd) answer(resp *http.Response) error {
	r := resp.Request
	falls, zips := o.falling(r), o.Zipped && Own(r)
	if !o.Clock && !o.Unknown && !falls && !zips {
		return nil
	}
	zipped := resp.Header.Get("Content-Encoding") == "gzip"
	from := io.Reader(resp.Body)
	if zipped {
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
			n, _ := strconv.ParseUint(text, 10, 64)
			return o.revision(strconv.FormatUint(n-1-n%16, 10))
		}
	}
	body = o.body(resp.Header.Get("Content-Type"), body, change)
	if zipped || zips {
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		_, _ = zip.Write(body)
		_ = zip.Close()
		body = b.Bytes()
		resp.Header.Set("Content-Encoding", "gzip")
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// falling reports whether a request is to see a revision from before. A second later it does not.
func (o Odd) falling(r *http.Request) bool {
	probe := Own(r) && strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return o.Falls && probe && time.Now().UnixMilli()%1750 < 250
}

// event changes an event of a watch. It is lost if nothing is left of it; it is late by what is returned with it.
func (o Odd) event(r *http.Request, contentType string, frame []byte) ([]byte, time.Duration) {
	if !bytes.Contains(frame[:min(len(frame), 32)], []byte("BOOKMARK")) {
		return o.changed(contentType, frame), 0
	}
	o.Unknown = false
	ends := bytes.Contains(frame, []byte(metav1.InitialEventsAnnotationKey))
	late := time.Duration(0)
	if Own(r) && ends && o.NoEnd {
		return nil, 0
	}
	if Own(r) && !ends && o.LateBookmarks {
		switch rand.IntN(4) { // #nosec G404 -- no secret
		case 0, 1:
			return nil, 0
		case 2:
			late = 3 * time.Second
		}
	}
	return o.changed(contentType, frame), late
}

func (o Odd) changed(contentType string, frame []byte) []byte {
	if !o.Clock && !o.Unknown {
		return frame
	}
	if !strings.HasPrefix(contentType, ask.Protobuf) {
		return o.body(contentType, frame, o.revision)
	}
	var e metav1.WatchEvent
	must(e.Unmarshal(frame[4:]))
	return events.ProtobufFrame(watch.EventType(e.Type), o.inProtobuf(e.Object.Raw, o.revision))
}
