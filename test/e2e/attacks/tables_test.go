package attacks

import (
	"net/http"
	"slices"
	"strings"
)

// The attacked lists, which come from memory.
const (
	pods          = "/api/v1/pods?resourceVersion=0"
	podsOfA       = "/api/v1/namespaces/team-a/pods?resourceVersion=0"
	podsOfB       = "/api/v1/namespaces/team-b/pods?resourceVersion=0"
	configMaps    = "/api/v1/configmaps?resourceVersion=0"
	configMapsOfA = "/api/v1/namespaces/team-a/configmaps?resourceVersion=0"
)

// podReaders may list podsOfA.
var podReaders = []string{admin, reader}

// gets returns attacks that are GETs of these targets. wantHitFor names the users whose answers must come from memory; nil:
// nobody's.
func gets(wantHitFor []string, all ...string) []attack {
	var out []attack
	for _, target := range all {
		out = append(out, attack{target: target, wantHitFor: wantHitFor})
	}
	return out
}

// methodAttacks use other methods than GET on a list that is in memory, or say in a header or a body that they do.
func methodAttacks() []attack {
	var out []attack
	for _, method := range []string{
		http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodPatch, http.MethodDelete + "X",
		"get", "Get", "GETX", "LIST", "WATCH", "PRI", "PROPFIND", "PURGE", "M-SEARCH",
	} {
		out = append(out, attack{method: method, target: podsOfA})
	}
	for _, name := range []string{"X-Http-Method-Override", "X-Method-Override", "X-Http-Method"} {
		out = append(out, attack{target: podsOfA, header: name + ": DELETE", wantHitFor: podReaders})
	}
	// A server that takes the body for the next request would answer it, or send it to kube-apiserver.
	const requestInBody = "GET /api/v1/pods?smuggled=1 HTTP/1.1\r\nHost: x\r\nAudit-Id: smuggled\r\n\r\n"
	out = append(
		out,
		attack{name: "POST, nothing", method: http.MethodPost, target: podsOfA},
		attack{name: "POST, no object", method: http.MethodPost, target: podsOfA, header: jsonHeader, body: "{}"},
		attack{name: "POST, GET behind", method: http.MethodPost, target: podsOfA, header: jsonHeader, body: requestInBody},
		attack{name: "DELETE of no object", method: http.MethodDelete, target: "/api/v1/namespaces/team-a/pods/none"},
		attack{name: "GET with a body", target: podsOfA, header: jsonHeader, body: `{"kind":"DeleteOptions"}`},
		attack{name: "GET with a body that is a request", target: podsOfA, body: requestInBody},
		attack{name: "HEAD with a body", method: http.MethodHead, target: podsOfA, body: "x"},
	)
	return withUsers(podReaders, out...)
}

// headerAttacks have headers that concern neither identity nor connection.
func headerAttacks() []attack {
	var out []attack
	// The answer to a condition must not tell users who may not list whether the list has changed.
	for _, header := range conditions {
		out = append(out, attack{target: pods, header: header, users: []string{admin, reader, named, anonymous}})
	}
	for _, header := range slices.Concat(conditions, headersOfNoMeaning) {
		out = append(out, attack{target: podsOfA, header: header, wantHitFor: []string{reader}})
	}
	for _, header := range headersToForward {
		out = append(out, attack{target: podsOfA, header: header})
	}
	// More than the 64 KiB of headers that listproxy reads, and less than the 1 MiB that kube-apiserver reads.
	for _, header := range []string{
		"X-Huge: " + strings.Repeat("x", 500_000),
		strings.Repeat("X-Many: x\n", 10_000) + "X-Many: x",
	} {
		out = append(out, attack{target: podsOfA, header: header, verdict: refused})
	}
	return withUsers([]string{reader}, out...)
}

// conditions are headers of HTTP caches and of partial answers.
var conditions = []string{
	"Range: bytes=0-9", "If-None-Match: *", `If-Match: "x"`, "If-Modified-Since: Sat, 01 Jan 2050 00:00:00 GMT",
	"If-Unmodified-Since: Sat, 01 Jan 2000 00:00:00 GMT", "Range: bytes=0-9\nIf-Range: \"x\"", "Cache-Control: only-if-cached, max-age=0",
}

// headersOfNoMeaning have no meaning for a list.
var headersOfNoMeaning = []string{
	// Another path or client, as proxies name them.
	"X-Original-Url: /api/v1/pods\nX-Rewrite-Url: /api/v1/pods\nX-Original-Uri: /api/v1/secrets",
	"Forwarded: for=10.0.0.1;host=example.com;proto=http", "X-Forwarded-For: 127.0.0.1",
	"X-Forwarded-Host: example.com\nX-Forwarded-Proto: http\nX-Forwarded-Port: 1\n" +
		"X-Forwarded-Prefix: /x\nX-Forwarded-Uri: /api/v1/secrets",
	"Te: trailers", "X-Odd: \xff\xfe", "Content-Type: application/json", "Cookie: a=b",
	"Traceparent: 00-11111111111111111111111111111111-2222222222222222-01",
}

// headersToForward make listproxy forward a list.
var headersToForward = []string{
	"Origin: https://example.com", "Origin: null", "Origin: https://example.com\nAccess-Control-Request-Method: GET",
	"Accept: text/html",
	"Accept: application/json\nAccept: application/yaml", "Accept: ;;;,,,", "Accept: application/json;as=Secret;v=v1;g=core",
	"Accept: " + strings.Repeat("a/b,", 15_000) + "*/*", "Accept-Encoding: gzip;q=0, *;q=1", "Expect: everything", "Audit-Id: other",
	"User-Agent: Mozilla/5.0",
	"X-Too-Huge: " + strings.Repeat("x", 1_200_000), // kube-apiserver refuses more than 1 MiB itself, in the same way
}

// watchAttacks are watches of what a user may not list, or with odd parameters. Each ends after a second (timeoutSeconds=1).
func watchAttacks() []attack {
	const (
		watch     = "&watch=true&timeoutSeconds=1"
		streaming = watch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		ofA       = "/api/v1/namespaces/team-a/pods?resourceVersion="
		watchMaps = configMapsOfA + watch
	)
	byPodReaders := slices.Concat(
		// What only the admin may watch.
		gets([]string{admin}, pods+watch, pods+streaming, podsOfB+watch,
			pods+watch+"&fieldSelector=metadata.namespace%3Dteam-a", pods+watch+"&labelSelector=of%3Dteam-b"),
		// What the reader may watch, too.
		gets(podReaders, podsOfA+watch, podsOfA+streaming,
			podsOfA+watch+"&fieldSelector=metadata.namespace%3Dteam-b", podsOfA+watch+"&limit=1"),
		// What need not come from memory: revisions that it does not have, and parameters that kube-apiserver may refuse.
		gets(nil, "/api/v1/pods?resourceVersion=99999999"+watch, "/api/v1/pods?resourceVersion=1"+watch,
			ofA+"99999999"+watch, ofA+"x"+watch, podsOfA+watch+"&continue=x", podsOfA+watch+"&resourceVersionMatch=Exact",
			podsOfA+watch+"&sendInitialEvents=true", podsOfA+watch+"&shardSelector=x"),
		// Other representations, a body, another method, and another user.
		[]attack{
			{target: pods + watch, header: "Accept: application/vnd.kubernetes.protobuf;stream=watch"},
			{target: pods + watch, header: "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
			{name: "with a body", target: podsOfA + watch, body: "x"},
			{method: http.MethodHead, target: podsOfA + watch},
			{target: pods + watch, header: "Impersonate-User: admin"},
		},
	)
	// named may watch only the ConfigMap open.
	byNamed := gets(
		nil, watchMaps+"&fieldSelector=metadata.name%3Dopen", watchMaps+"&fieldSelector=metadata.name%3Dshut",
		watchMaps, watchMaps+"&fieldSelector=metadata.name!%3Dopen",
	)
	asReader := attack{
		target: podsOfA + watch, header: "Impersonate-User: alice",
		users:      []string{admin, nobody, reviewer, deputy},
		wantHitFor: []string{deputy},
	}
	return slices.Concat(withUsers(podReaders, byPodReaders...), withUsers([]string{named}, byNamed...), []attack{asReader})
}

// resourceAttacks try to learn which resources exist, and which of them are in memory. They also ask for paths of the admin
// port, which the port for clients must not serve.
func resourceAttacks() []attack {
	return withUsers([]string{admin, nobody, stranger}, gets(
		nil,
		"/api/v1/limitranges?resourceVersion=0", "/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=1",
		"/api/v1/secrets?resourceVersion=0",
		"/api/v1/no-such-things?resourceVersion=0", "/apis/apps/v9/deployments?resourceVersion=0",
		"/apis/authentication.k8s.io/v1/tokenreviews?resourceVersion=0", "/apis/no.such.group/v1/things?resourceVersion=0",
		"/apis/attacks.test/v1/gadgets?resourceVersion=0", "/apis/elsewhere.example/v1/things?resourceVersion=0",
		"/api/v1/namespaces/no-such-namespace/configmaps?resourceVersion=0",
		"/flagz", "/debug/pprof/cmdline", "/metrics/listproxy",
	)...)
}
