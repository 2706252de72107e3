package forwarding

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
)

// openWatch opens a watch through a door; next returns its next event.
func openWatch(ctx context.Context, t *testing.T, d *door, c call) (next func() (string, error)) {
	t.Helper()
	res := d.send(ctx, t, c)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", d.name, res.Status)
	}
	if d != direct {
		wantForwarded(t, reply{cacheStatus: res.Header.Get(cacheStatus)}, "watch")
	}
	return eventsOf(res)
}

// eventsOf returns what reads the next event of a watch.
func eventsOf(res *http.Response) (next func() (string, error)) {
	in := events.NewReader(res.Body, res.Header.Get("Content-Type"))
	return func() (string, error) {
		event, err := in.Frame()
		return string(event), err
	}
}

// initialEvents reads a streaming list up to the bookmark at its end, whose revision is that of the
// moment.
func initialEvents(t *testing.T, next func() (string, error)) (all []string) {
	t.Helper()
	for {
		event, err := next()
		if err != nil {
			t.Fatalf("%q, %v", event, err)
		}
		if strings.Contains(event, metav1.InitialEventsAnnotationKey) {
			return append(all, reply{Body: event}.impersonal().Body)
		}
		all = append(all, event)
	}
}

// TestWatch changes an object only after the change before has come out of both watches.
func TestWatch(t *testing.T) {
	tests := map[string]struct {
		header http.Header
		path   string // instead of ?watch=true
	}{
		"JSON":                 {},
		"JSON, gzip":           {header: http.Header{"Accept-Encoding": {"gzip"}}},
		"legacy path":          {path: "/api/v1/watch/namespaces/%s/configmaps?a=b"},
		"Table":                {header: accept(asTable)},
		"metadata":             {header: accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")},
		"dropping":             {header: accept("application/json;drop=metadata.managedFields")},
		"client-go's dropping": {header: accept(dropping)},
		"protobuf":             {header: accept(asProtobuf)},
		"metadata in protobuf": {header: accept(asProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1")},
	}
	for name, test := range tests {
		for _, proto := range []string{http1, http2} {
			t.Run(name+" over "+proto, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), longPatience)
				defer cancel()
				ns := newNamespace(t)
				c := call{proto: proto, path: "/api/v1/namespaces/" + ns + "/configmaps?watch=true", header: test.header}
				if test.path != "" {
					c.path = fmt.Sprintf(test.path, ns)
				}
				c.path += "&resourceVersion=" + newConfigMap(t, ns, "first", nil)
				// The header comes before the first event.
				wantNext := openWatch(ctx, t, direct, c)
				gotNext := openWatch(ctx, t, via, c)

				maps := admin.CoreV1().ConfigMaps(ns)
				for i := range 8 {
					switch {
					case i == 0:
						newConfigMap(t, ns, "watched", map[string]string{"size": strings.Repeat("x", 100_000)})
					case i < 7:
						change := fmt.Appendf(nil, `{"data":{"step":"%d"}}`, i)
						if _, err := maps.Patch(ctx, "watched", types.MergePatchType, change, metav1.PatchOptions{}); err != nil {
							t.Fatal(err)
						}
					default:
						expect.NoError(t, maps.Delete(ctx, "watched", metav1.DeleteOptions{}))
					}
					got, err := gotNext()
					if err != nil {
						t.Fatalf("event %d: %v", i, err)
					}
					want, err := wantNext()
					expect.NoError(t, err)
					if test.header.Get("Accept") == asTable {
						got, want = plainTable(got), plainTable(want)
					}
					if got != want {
						t.Fatalf("event %d (-direct +via):\n%s", i, cmp.Diff(want, got))
					}
				}
			})
		}
	}
}

// tableMoment is what of a Table may differ between two watches: the objects' age, and with which
// event the columns are explained (kube-apiserver shares encoded events between watches).
var tableMoment = regexp.MustCompile(`"columnDefinitions":(null|\[.*?\])|"[0-9]+s"`)

func plainTable(event string) string { return tableMoment.ReplaceAllString(event, "") }

// TestStreamingList compares the whole of a list that comes as a watch, up to the bookmark at its
// end.
func TestStreamingList(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), longPatience)
	defer cancel()
	ns := newNamespace(t)
	for i := range 20 {
		newConfigMap(t, ns, fmt.Sprintf("map-%d", i), nil)
	}
	c := call{path: "/api/v1/namespaces/" + ns + "/configmaps?" + ask.StreamingList}
	initial := func(d *door) []string { return initialEvents(t, openWatch(ctx, t, d, c)) }
	if d := cmp.Diff(initial(direct), initial(via)); d != "" {
		t.Errorf("(-direct +via):\n%s", d)
	}
}

// TestWatchEndedByTheAPIServer lets watches run into their own timeout, two seconds before which
// the API server sends a bookmark, if it is not too busy.
func TestWatchEndedByTheAPIServer(t *testing.T) {
	for _, proto := range []string{http1, http2} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), longPatience)
			defer cancel()
			ns := newNamespace(t)
			c := call{proto: proto, path: "/api/v1/namespaces/" + ns +
				"/configmaps?watch=true&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion=" + newConfigMap(t, ns, "one", nil)}
			for bookmarked := false; !bookmarked; {
				next := openWatch(ctx, t, via, c)
				newConfigMap(t, newNamespace(t), "other", nil) // makes a bookmark worth sending
				event, err := next()
				for ; err == nil; event, err = next() {
					if !strings.HasPrefix(event, `{"type":"BOOKMARK",`) {
						t.Errorf("instead of a bookmark: %s", event)
					}
					bookmarked = true
				}
				if !errors.Is(err, io.EOF) || event != "" {
					t.Fatalf("instead of the end: %q, %v", event, err)
				}
			}
		})
	}
}

// TestWatchOfTheUnknown compares watches that do not begin, or end with an error at once.
func TestWatchOfTheUnknown(t *testing.T) {
	for name, path := range map[string]string{
		"malformed": "/api/v1/configmaps?watch=true&resourceVersion=x",
		"invalid":   "/api/v1/configmaps?watch=true&sendInitialEvents=true",
		"nothing":   "/api/v1/unicorns?watch=true",
		"forbidden": "/api/v1/secrets?watch=true",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := call{path: path}
			if name == "forbidden" {
				c.user = controlplane.Alice
			}
			same(t, c, "watch")
		})
	}
}

// TestWebSocketWatch watches over a websocket, which the API server offers to browsers.
func TestWebSocketWatch(t *testing.T) {
	ns := newNamespace(t)
	target := "/api/v1/namespaces/" + ns + "/configmaps?watch=true&resourceVersion=" + newConfigMap(t, ns, "first", nil)
	_, want := openWebSocket(t, direct, target)
	header, got := openWebSocket(t, via, target)
	wantForwarded(t, reply{cacheStatus: header.Get(cacheStatus)}, "watch")
	for i := range 5 {
		newConfigMap(t, ns, fmt.Sprintf("map-%d", i), nil)
		if d := cmp.Diff(nextMessage(t, want), nextMessage(t, got)); d != "" {
			t.Errorf("event %d (-direct +via):\n%s", i, d)
		}
	}
}

// openWebSocket asks a door for a websocket.
func openWebSocket(t *testing.T, d *door, target string) (http.Header, *bufio.Reader) {
	t.Helper()
	base, err := url.Parse(d.url)
	expect.NoError(t, err)
	conn := d.dial(t)
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nOrigin: %s\r\n"+
		"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", target, base.Host, cp.Token(controlplane.Admin), d.url)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	expect.NoError(t, err)
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("%s: %s, %v", d.name, res.Status, res.Header)
	}
	return res.Header, in
}

// nextMessage reads a message from a server (RFC 6455, 5.2): whole, not masked.
func nextMessage(t *testing.T, in *bufio.Reader) string {
	t.Helper()
	var head [2]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		t.Fatal(err)
	}
	size := int64(head[1])
	switch size {
	case 126:
		var long [2]byte
		if _, err := io.ReadFull(in, long[:]); err != nil {
			t.Fatal(err)
		}
		size = int64(binary.BigEndian.Uint16(long[:]))
	case 127:
		t.Fatal("a message of more than 64 KiB")
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(in, message); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x %s", head[0], message)
}
