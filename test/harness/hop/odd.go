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

// Odd has the unusual but legal behaviours that a hop gives its upstream, as API servers of other control planes have them.
// Behaviours that change answers to callers apply to all requests. Those that concern only a client that keeps a state apply
// to listproxy's [Own] requests. The zero Odd changes nothing.
type Odd struct {
	// ClockRevisions makes revisions nanoseconds, of nineteen digits, about a quarter of an hour apart.
	ClockRevisions bool
	// UnknownFields adds an unknown header X-Future to each answer, and an unknown field to each object's metadata.
	UnknownFields bool
	// JSONOnly refuses protobuf.
	JSONOnly bool

	// LateBookmarks (own requests) loses every other bookmark. One in four comes three seconds late, and so do the events after
	// it.
	LateBookmarks bool
	// NoInitialEnd (own requests) loses the bookmark after the initial events.
	NoInitialEnd bool
	// RevisionFalls (own requests) makes the current revision lower than it was, for a quarter of a second now and then.
	RevisionFalls bool
	// AlwaysGzip (own requests) compresses all answers except watches, whatever Accept-Encoding says.
	AlwaysGzip bool

	// HTTP1 turns HTTP/2 off.
	HTTP1 bool
	// Streams is the number of concurrent requests on a connection of HTTP/2; 0 is the default.
	Streams int
	// IdleTimeout is the time after which a connection without bytes is reset; 0 is never.
	IdleTimeout time.Duration
}

// OfCallers returns o with the behaviours alone that callers notice in answers.
func (o Odd) OfCallers() Odd {
	return Odd{ClockRevisions: o.ClockRevisions, UnknownFields: o.UnknownFields, JSONOnly: o.JSONOnly}
}

// The revisions of ClockRevisions: revision n of the upstream is at epoch + n ticks, and less than jitter (a prime) later.
const epoch, tick, jitter = 1_700_000_000_000_000_000, 1_000_000_000_000, 999_999_937

// revision returns the hop's revision for one of the upstream.
func (o Odd) revision(text string) string {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || !o.ClockRevisions {
		return text
	}
	return strconv.FormatUint(epoch+n*tick+n*7919%jitter, 10)
}

// upstreamRevision returns the upstream's revision for one of the hop. A time between two ticks is the earlier tick's.
func (o Odd) upstreamRevision(text string) string {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < epoch || !o.ClockRevisions {
		return text
	}
	return strconv.FormatUint((n-epoch)/tick, 10)
}

// The places of revisions, in the middle one of three groups. A continue token is base64, with a revision inside. Expressions
// for long bodies begin with a word, since package regexp finds such places fast.
var (
	inQueries  = regexp.MustCompile(`((?:^|&)resourceVersion=)(\d+)()`)
	inObjects  = regexp.MustCompile(`(resourceVersion"?: ?")(\d+)(")`)
	inMessages = regexp.MustCompile(`(resource version: |current: |too old resource version: \d+ \()(\d+)()`)
	inTokens   = regexp.MustCompile(`("rv":)(\d+)()`)
	tokens     = regexp.MustCompile(`(continue(?:=|"?: ?"?))([\w-]{8,})()`)
)

// beginOfMetadata matches metadata up to the name of the first member, which is the third group. The first two are the white
// space before the brace and behind it.
var beginOfMetadata = regexp.MustCompile(`"metadata":( ?)\{(\s*)"(\w+)`)

// within changes the middle group at each place.
func within(b []byte, place *regexp.Regexp, change func(string) string) []byte {
	return place.ReplaceAllFunc(b, func(found []byte) []byte {
		parts := place.FindSubmatch(found)
		return []byte(string(parts[1]) + change(string(parts[2])) + string(parts[3]))
	})
}

// insideToken returns a function that changes the revision inside a continue token.
func insideToken(change func(string) string) func(string) string {
	return func(text string) string {
		read, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return text
		}
		return base64.RawURLEncoding.EncodeToString(within(read, inTokens, change))
	}
}

// request changes a request for the upstream.
func (o Odd) request(out *http.Request) {
	query := within([]byte(out.URL.RawQuery), inQueries, o.upstreamRevision)
	out.URL.RawQuery = string(within(query, tokens, insideToken(o.upstreamRevision)))
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

// body changes the revisions in a body of the upstream, and adds unknown fields.
func (o Odd) body(contentType string, b []byte, change func(string) string) []byte {
	if strings.HasPrefix(contentType, ask.Protobuf) {
		return o.inProtobuf(b, change)
	}
	b = within(within(b, inObjects, change), tokens, insideToken(change))
	if bytes.Contains(b, []byte("resource version: ")) {
		b = within(b, inMessages, change)
	}
	if o.UnknownFields {
		b = beginOfMetadata.ReplaceAllFunc(b, func(found []byte) []byte {
			if first := string(beginOfMetadata.FindSubmatch(found)[3]); first == "resourceVersion" || first == "continue" {
				return found // metadata of a list or a bookmark
			}
			return beginOfMetadata.ReplaceAll(found, []byte(`"metadata":${1}{$2"future":${1}true,$2"$3`))
		})
	}
	return b
}

// The numbers of protobuf fields: of every kind, of a list, of a Status, of ListMeta and of ObjectMeta.
const (
	metadataField       = 1
	itemsField          = 2
	messageField        = 3
	listRevisionField   = 2
	listContinueField   = 3
	objectRevisionField = 6
	unknownField        = 1000 // no kind has it
)

// inProtobuf is body for an object or a list in protobuf.
func (o Odd) inProtobuf(b []byte, change func(string) string) []byte {
	var u runtime.Unknown
	if !bytes.HasPrefix(b, magic) || u.Unmarshal(b[len(magic):]) != nil {
		return b
	}
	isList := strings.HasSuffix(u.Kind, "List")
	u.Raw = edit(u.Raw, func(field protowire.Number, content []byte) []byte {
		switch {
		case field == metadataField && (isList || u.Kind == "Status"):
			return editListMeta(content, change)
		case field == metadataField:
			return o.editObjectMeta(content, change)
		case field == itemsField && isList:
			return edit(content, func(field protowire.Number, content []byte) []byte {
				if field == metadataField {
					return o.editObjectMeta(content, change)
				}
				return content
			})
		case field == messageField && u.Kind == "Status":
			return within(content, inMessages, change)
		}
		return content
	})
	encoded, err := u.Marshal()
	must(err)
	return append(bytes.Clone(magic), encoded...)
}

// editListMeta changes the revision and the token of a ListMeta.
func editListMeta(meta []byte, change func(string) string) []byte {
	return edit(meta, func(field protowire.Number, content []byte) []byte {
		switch field {
		case listRevisionField:
			return []byte(change(string(content)))
		case listContinueField:
			return []byte(insideToken(change)(string(content)))
		}
		return content
	})
}

// editObjectMeta changes the revision of an ObjectMeta, and adds an unknown field.
func (o Odd) editObjectMeta(meta []byte, change func(string) string) []byte {
	meta = edit(meta, func(field protowire.Number, content []byte) []byte {
		if field == objectRevisionField {
			return []byte(change(string(content)))
		}
		return content
	})
	if o.UnknownFields {
		meta = protowire.AppendString(protowire.AppendTag(meta, unknownField, protowire.BytesType), "future")
	}
	return meta
}

// magic is the prefix of an object in protobuf.
var magic = []byte("k8s\x00")

// edit returns a protobuf message in which change has replaced the content of each length-delimited field.
func edit(message []byte, change func(protowire.Number, []byte) []byte) (edited []byte) {
	for len(message) > 0 {
		number, kind, tagLength := protowire.ConsumeTag(message)
		if tagLength < 0 {
			panic(fmt.Sprintf("not a message: %q", message))
		}
		valueLength := protowire.ConsumeFieldValue(number, kind, message[tagLength:])
		if valueLength < 0 {
			panic(fmt.Sprintf("not a message: %q", message))
		}
		fieldLength := tagLength + valueLength
		if kind == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(message[tagLength:])
			edited = append(edited, message[:tagLength]...)
			edited = protowire.AppendBytes(edited, change(number, content))
		} else {
			edited = append(edited, message[:fieldLength]...)
		}
		message = message[fieldLength:]
	}
	return edited
}

// answer changes an answer that is not a watch.
func (o Odd) answer(resp *http.Response) error {
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
			n, _ := strconv.ParseUint(text, 10, 64)
			return o.revision(strconv.FormatUint(n-1-n%16, 10)) // 1 to 16 lower
		}
	}
	body = o.body(resp.Header.Get("Content-Type"), body, change)
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
	probe := Own(r) && strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return o.RevisionFalls && probe && time.Now().UnixMilli()%1750 < 250
}

// event returns an event of a watch after all changes, and its delay. No bytes mean that the event is lost.
func (o Odd) event(r *http.Request, contentType string, frame []byte) (_ []byte, delay time.Duration) {
	if !bytes.Contains(frame[:min(len(frame), 32)], []byte("BOOKMARK")) { // the type is at the beginning
		return o.changeEvent(contentType, frame), 0
	}
	endsInitial := bytes.Contains(frame, []byte(metav1.InitialEventsAnnotationKey))
	if Own(r) && endsInitial && o.NoInitialEnd {
		return nil, 0
	}
	if Own(r) && !endsInitial && o.LateBookmarks {
		switch rand.IntN(4) { // #nosec G404 -- no secret
		case 0, 1:
			return nil, 0
		case 2:
			delay = 3 * time.Second
		}
	}
	bookmarks := o
	bookmarks.UnknownFields = false // no bookmark has any
	return bookmarks.changeEvent(contentType, frame), delay
}

// changeEvent returns an event with changed revisions and unknown fields.
func (o Odd) changeEvent(contentType string, frame []byte) []byte {
	if !o.ClockRevisions && !o.UnknownFields {
		return frame
	}
	if !strings.HasPrefix(contentType, ask.Protobuf) {
		return o.body(contentType, frame, o.revision)
	}
	var e metav1.WatchEvent
	must(e.Unmarshal(frame[4:])) // behind the frame's length
	return events.ProtobufFrame(watch.EventType(e.Type), o.inProtobuf(e.Object.Raw, o.revision))
}
