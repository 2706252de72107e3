package forwarding

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// shape is how a client of some language writes requests. docs/compatibility.md says of which
// version.
type shape struct {
	client string
	proto  int // of HTTP
	header http.Header
	// queries of lists and watches, with {rv} and {token} for a revision and a continue token, by what
	// becomes of them.
	queries map[becomes][]string
}

// becomes is the reason to forward a request, or hit: without switches, and with both.
type becomes [2]string

const (
	hit = "hit"
	// shapeMaps is how many objects there are: enough for gzip.
	shapeMaps = 24
)

var (
	always  = becomes{hit, hit}
	newest  = becomes{"consistent", hit}
	watches = becomes{"watch", hit}
	never   = becomes{"representation", "representation"}
	tables  = becomes{"watch", "representation"}
)

// shapes are those of clients of today. What the Python and JavaScript clients send was recorded,
// the others' is from their sources.
func shapes() []shape {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	metadata := func(kind string) string { return "application/json;as=" + kind + ";g=meta.k8s.io;v=v1" }
	const (
		// dropping is what client-go 1.38 sends for a client that wants no managed fields.
		dropping  = "application/json; drop=metadata.managedFields,*/*; drop=metadata.managedFields"
		inJSON    = "application/json"
		rustPage  = "?&limit=10"
		rustAny   = "?&resourceVersion=0"
		rustWatch = "?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true"
		streaming = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
		goWatch   = "&timeoutSeconds=375&watch=true"
		goStream  = "?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true" + goWatch
	)
	return []shape{
		{
			"Python", 1,
			header("Accept", inJSON, "Accept-Encoding", "identity", "Content-Type", inJSON, "User-Agent", "OpenAPI-Generator/22.6.0/python"),
			map[becomes][]string{
				newest: {"", "?limit=10"},
				always: {"?resourceVersion=0", "?continue={token}&limit=10", "?allowWatchBookmarks=False&resourceVersion=0&watch=False"},
				watches: {
					"?watch=True", "?resourceVersion={rv}&watch=True", "?resourceVersion={rv}&timeoutSeconds=60&watch=True",
					"?allowWatchBookmarks=True&resourceVersion={rv}&watch=True",
					"?allowWatchBookmarks=True&sendInitialEvents=True&watch=True&resourceVersionMatch=NotOlderThan",
				},
			},
		},
		{
			"JavaScript", 1,
			header("Accept", "application/json, */*;q=0.8", "Accept-Encoding", "gzip,deflate", "Connection", "close",
				"User-Agent", "node-fetch/1.0 (+https://github.com/bitinn/node-fetch)"),
			map[becomes][]string{newest: {"", "?limit=10"}, always: {"?resourceVersion=0"}},
		},
		{
			"JavaScript, watches", 1,
			header("Accept", "*/*", "Accept-Encoding", "gzip,deflate", "Connection", "close"),
			map[becomes][]string{watches: {"?watch=true&resourceVersion={rv}", "?watch=true"}},
		},
		{
			"kube-rs", 1, header("Accept-Encoding", "gzip"),
			map[becomes][]string{
				newest:  {"?", rustPage},
				always:  {rustPage + "&continue={token}", rustAny, "?&resourceVersion={rv}&resourceVersionMatch=NotOlderThan"},
				watches: {rustWatch + "&resourceVersion={rv}", rustWatch + "&resourceVersion=0", rustWatch + streaming},
			},
		},
		{
			// Newer ones, which cannot read the watches that 1.37 compresses.
			"kube-rs, uncompressed watches", 1, header("Accept-Encoding", "identity"),
			map[becomes][]string{watches: {rustWatch + "&resourceVersion={rv}", rustWatch + streaming}},
		},
		{
			"kube-rs, lists of metadata", 1, header("Accept", metadata("PartialObjectMetadataList"), "Content-Type", inJSON),
			map[becomes][]string{newest: {rustPage}, always: {rustAny}},
		},
		{
			"kube-rs, watches of metadata", 1, header("Accept", metadata("PartialObjectMetadata"), "Content-Type", inJSON),
			map[becomes][]string{watches: {rustWatch + "&resourceVersion={rv}"}},
		},
		{
			"fabric8", 2, header("Accept-Encoding", "gzip", "User-Agent", "fabric8-kubernetes-client/7.4.0"),
			map[becomes][]string{
				newest: {"", "?limit=10"},
				always: {"?resourceVersion=0", "?limit=10&resourceVersion=0", "?limit=10&continue={token}"},
				watches: {
					"?allowWatchBookmarks=true&resourceVersion={rv}&timeoutSeconds=600&watch=true", "?allowWatchBookmarks=true&watch=true",
				},
			},
		},
		{
			"Java", 2,
			header("Accept", inJSON, "Accept-Encoding", "gzip", "Content-Type", inJSON, "User-Agent", "Kubernetes Java Client/26.0.0"),
			map[becomes][]string{
				newest:  {"", "?resourceVersion=&watch=false", "?limit=10&watch=false"},
				always:  {"?resourceVersion=0&watch=false", "?resourceVersion={rv}&watch=false"},
				watches: {"?resourceVersion={rv}&timeoutSeconds=412&watch=true"},
			},
		},
		{
			"C#", 2, header(),
			map[becomes][]string{
				newest: {"", "?limit=10"}, always: {"?resourceVersion=0", "?continue={token}&limit=10"},
				watches: {"?watch=true", "?resourceVersion={rv}&watch=true"},
			},
		},
		{
			"client-go", 2, header("Accept", inJSON, "Accept-Encoding", "gzip"),
			map[becomes][]string{
				newest: {"", "?limit=10"},
				always: {"?limit=10&continue={token}", "?limit=500&resourceVersion=0", "?resourceVersion={rv}"},
				watches: {
					"?allowWatchBookmarks=true&resourceVersion={rv}" + goWatch, goStream,
					"?allowWatchBookmarks=true&resourceVersion={rv}&resourceVersionMatch=NotOlderThan&sendInitialEvents=true" + goWatch,
				},
			},
		},
		{
			"client-go 1.38 without managed fields", 2, header("Accept", dropping, "Accept-Encoding", "gzip"),
			map[becomes][]string{
				never:  {"", "?limit=500&resourceVersion=0", "?limit=10&continue={token}"},
				tables: {"?allowWatchBookmarks=true&resourceVersion={rv}" + goWatch, goStream},
			},
		},
		{
			"kubectl", 2,
			header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"),
			map[becomes][]string{never: {"?limit=500"}, tables: {"?resourceVersion={rv}&watch=true"}},
		},
	}
}

// TestShapes sends what clients of several languages send, through both doors, with the switches
// for the newest state and for watches and without. Whoever answers, the answer is the API server's
// own.
func TestShapes(t *testing.T) {
	t.Parallel()
	switched := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed),
		Args:     []string{"--connect-port", "0", "--consistent-lists=always", "--watches", "--history-window", longWindow, "--eager", "configmaps"},
	})
	ways := [][]way{{via}, {switched.RESTConfig}}
	if !testing.Short() {
		ways = [][]way{{via, tunnel}, {switched.RESTConfig, switched.TunnelConfig}}
	}
	ns := newNamespace(t)
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	for _, of := range ways {
		for _, s := range shapes() {
			poll.Until(t, patience, "what is watched from a revision is known from then on", func() bool {
				_, from := s.ask(t, of[0], path+"?resourceVersion=0")
				return !strings.Contains(from, "fwd=miss")
			})
		}
	}
	for i := range shapeMaps {
		newConfigMap(t, ns, fmt.Sprintf("map-%02d", i), map[string]string{"text": strings.Repeat("0123456789", 1000)})
	}
	// Two events happen after this revision.
	revision := newConfigMap(t, ns, "map-x", nil)
	newConfigMap(t, ns, "map-y", nil)
	newConfigMap(t, ns, "map-z", nil)
	page, err := ask.ReadList(get(t, direct.as(t, controlplane.Admin), path+"?limit=10").Body)
	expect.NoError(t, err)
	known := strings.NewReplacer("{rv}", revision, "{token}", page.Next)
	for switches, of := range ways {
		for i, via := range of {
			for _, s := range shapes() {
				for becomes, queries := range s.queries {
					for _, query := range queries {
						t.Run(fmt.Sprintf("switches %d, way %d/%s %s", switches, i, s.client, query), func(t *testing.T) {
							t.Parallel()
							testShape(t, via, becomes[switches], s, path+known.Replace(query))
						})
					}
				}
			}
		}
	}
}

// testShape compares an answer with the API server's own before and after, and where it came from with
// what becomes of it. The API server's own can differ: something was written meanwhile, or a table's
// ages are a second older.
func testShape(t *testing.T, via way, becomes string, s shape, target string) {
	t.Helper()
	want := "listproxy; fwd=bypass; detail=" + becomes
	if becomes == hit {
		want = "listproxy; hit"
	}
	var before, got said
	var from string
	poll.Until(t, patience, "an answer that is not of the moment", func() bool {
		before, _ = s.ask(t, direct, target)
		got, from = s.ask(t, via, target)
		after, _ := s.ask(t, direct, target)
		// What is not there yet, or on a busy machine not in time, soon is.
		return before == after && !slices.ContainsFunc([]string{"warming", "review-failed", "not-proven"}, func(soon string) bool {
			return strings.HasSuffix(from, "="+soon)
		})
	})
	if !strings.HasPrefix(from, want) {
		t.Errorf("Cache-Status is %q, want %q", from, want)
	}
	// From memory, the token of a page may have a slash where the API server, which has read the page
	// from etcd, writes none.
	if becomes == hit && body.SameButToken([]byte(before.Body), []byte(got.Body)) {
		got.Body = before.Body
	}
	expect.Same(t, before, got)
}

// said is an answer: the status and what a client needs to read the body, and the body.
type said struct{ Head, Body string }

// ownRevision is the revision of a list or of a bookmark, which moves with everything in the
// cluster.
var ownRevision = regexp.MustCompile(`("kind":"[A-Za-z]+List",.{0,50}"metadata":\{|"BOOKMARK".*)"resourceVersion":"[0-9]+"`)

// ask returns an answer without its content encoding and such revisions, and where it came from. Of a
// watch it has the events after a revision, or all objects, and the bookmark after them if the client
// takes any.
func (s shape) ask(t *testing.T, via way, target string) (answer said, from string) {
	t.Helper()
	_, query, _ := strings.Cut(target, "?")
	asks, err := url.ParseQuery(query)
	expect.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := via.speaking(s.proto).as(t, controlplane.Admin)
	client.Header = http.Header{"Accept": nil}
	maps.Copy(client.Header, s.header)
	res, err := client.Open(ctx, http.MethodGet, target, nil)
	expect.NoError(t, err)
	if res.ProtoMajor != s.proto {
		t.Fatalf("the answer came over %s", res.Proto)
	}
	defer func() { _ = res.Body.Close() }()
	var content io.Reader = res.Body
	if res.Header.Get("Content-Encoding") == "gzip" {
		content = events.Unzip(content)
	}
	answer.Head = fmt.Sprint(res.StatusCode, " ", res.Header.Get("Content-Type"), " ", res.Header.Get("Content-Encoding"))
	told := &strings.Builder{}
	if !strings.EqualFold(asks.Get("watch"), "true") {
		_, err := io.Copy(told, content)
		expect.NoError(t, err)
	} else {
		count, in := 2, bufio.NewReader(content)
		if revision := asks.Get("resourceVersion"); revision == "" || revision == "0" || asks.Has("sendInitialEvents") {
			count = shapeMaps + 3
			if strings.EqualFold(asks.Get("allowWatchBookmarks"), "true") {
				count++
			}
		}
		for range count {
			line, err := in.ReadString('\n')
			expect.NoError(t, err)
			_, _ = told.WriteString(line)
		}
	}
	answer.Body = ownRevision.ReplaceAllString(told.String(), `$1"resourceVersion":"~"`)
	return answer, res.Header.Get("Cache-Status")
}
