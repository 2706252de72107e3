package attacks

import (
	"encoding/base64"
	"strings"
)

// pathAttacks spell paths so that two parsers may read different requests.
func pathAttacks() []attack {
	out := []attack{{name: "plain", target: pods + "&timeoutSeconds=1", wantHitFor: []string{admin}}}
	for _, path := range oddPaths {
		out = append(out, attack{target: path + "?resourceVersion=0&timeoutSeconds=1"})
	}
	return withUsers(podReaders, out...)
}

// oddPaths are paths that one parser may take for a list, and another for no list, or for a list of another namespace. The
// reader may list pods in team-a, but not in team-b or in all namespaces.
var oddPaths = []string{
	// More slashes than needed. A server that merges them lists all pods. Two at the beginning may be the host of a URL.
	"//api/v1/pods", "//example.com/api/v1/pods", "///api/v1/pods", "/api//v1/pods", "/api/v1//pods", "/api/v1/pods/", "/api/v1/pods//",
	// Dots. A server that resolves them leaves team-a, or another path that anybody may read.
	"/api/v1/./pods", "/api/v1/pods/.", "/api/v1/pods/x/..", "/../api/v1/pods", "/api/v1/namespaces/team-a/../team-b/pods",
	"/api/v1/namespaces/team-a/pods/../../../pods", "/healthz/../api/v1/pods", "/openapi/v2/%2e%2e/%2e%2e/api/v1/pods",
	// Backslashes, which some servers take for slashes.
	`/api/v1\pods`, `/api/v1/namespaces/team-a/..\team-b/pods`,
	// Escaped dots and slashes. A server may resolve them before it looks at the path, or after.
	"/api/v1/namespaces/team-a/%2e%2e/team-b/pods", "/api/v1/namespaces/team-a/.%2E/team-b/pods", "/api/v1/%2e/pods",
	"/api/v1%2fpods", "/api/v1/namespaces/team-a%2Fpods", "/api/v1/namespaces/team-a%2f..%2fteam-b/pods",
	"/api/v1/namespaces/team-a%2f%2e%2e%2fteam-b/pods", "/api/v1/namespaces/team-a%252fpods",
	// Escaped letters, which mean the same as letters.
	"/api/v1/%70ods", "/api/v1/namespaces/team-%61/pods",
	// Escaped characters that may end a name, a path or a line.
	"/api/v1/pods%00", "/api/v1/namespaces/team-a%00/pods", "/api/v1/pods%0a", "/api/v1/pods%0d%0aImpersonate-User:%20admin",
	"/api/v1/pods%20", "/api/v1/namespaces/team-a%20/pods", "/api/v1/pods%3fwatch=1", "/api/v1/pods%23",
	// Escapes that are no UTF-8 (the first is an overlong slash), or no escapes.
	"/api/v1/namespaces/team-a%c0%af../pods", "/api/v1/pods%ff", "/api/v1/pods%zz", "/api/v1/pods%2",
	// Parameters in the path, and letters that are not ASCII.
	"/api/v1/pods;x=1", "/api/v1;x=1/pods", "/api/v1/pods\xc3\xa9", "/api/v1/namespaces/team-\xd0\xb0/pods",
	// Capitals.
	"/API/V1/PODS", "/api/v1/Pods", "/api/v1/namespaces/TEAM-A/pods",
	// An empty namespace, one that is a dot or a wildcard, and two.
	"/api/v1/namespaces//pods", "/api/v1/namespaces/../pods", "/api/v1/namespaces/*/pods",
	"/api/v1/namespaces/team-a/namespaces/team-b/pods", "/api/v1/namespaces/team-a/namespaces",
	// The old paths of watches and proxies.
	"/api/v1/watch/pods", "/api/v1/watch/namespaces/team-a/pods", "/api/v1/watch/namespaces/team-b/pods", "/api/v1/proxy/pods",
	// Groups, versions and resources that do not exist.
	"/apis//v1/pods", "/apis/core/v1/pods", "/api/pods", "/api/v2/pods", "/api/v1/podz", "/api/v1/*", "/api/v1/pods,configmaps",
	// An object, a subresource, and no list at all.
	"/api/v1/namespaces/team-a/pods/status", "/api/v1/namespaces/team-b/pods/shut-0", "/api/v1/namespaces/team-b/pods//",
	"/api/v1/namespaces/team-a/configmaps/shut", "/", "/version/api/v1/pods",
	// Very long paths.
	"/api/v1/namespaces/" + strings.Repeat("a", 60_000) + "/pods", "/api/v1" + strings.Repeat("/x", 20_000),
}

// queryAttacks have queries that two parsers may read differently, and selectors that select more than the user may list.
func queryAttacks() []attack {
	var out []attack
	// addToBothLists adds each of the queries to two lists: to podsOfA by podReaders, and to configMapsOfA by named. podsHitFor
	// and configMapsHitFor name the users who must get these lists from memory.
	addToBothLists := func(podsHitFor, configMapsHitFor []string, queries ...string) {
		for _, query := range queries {
			out = append(
				out,
				attack{target: podsOfA + query, users: podReaders, wantHitFor: podsHitFor},
				attack{target: configMapsOfA + query, users: []string{named}, wantHitFor: configMapsHitFor},
			)
		}
	}
	var noHits []string
	addToBothLists(podReaders, noHits, "", "&timeoutSeconds=7", "&labelSelector=")
	addToBothLists(noHits, []string{named}, openByName, "&fieldSelector=metadata.name%3D%3Dopen", "&fieldSelector=metadata.name=open")
	addToBothLists(noHits, noHits, oddQueries...)
	for _, otherScope := range []string{configMaps, "/api/v1/namespaces/team-b/configmaps?resourceVersion=0"} {
		out = append(out, attack{target: otherScope + openByName, users: []string{named}})
	}
	return append(out, tokenAttacks()...)
}

// openByName selects the object that named may list in team-a.
const openByName = "&fieldSelector=metadata.name%3Dopen"

// oddQueries are ends of a query. Each follows the query of a list.
var oddQueries = []string{
	// Spellings of watch. Some of them make the list a watch, others do not.
	"&watch=&timeoutSeconds=1", "&watch&timeoutSeconds=1", "&watch=0", "&watch=1&timeoutSeconds=1", "&watch=2&timeoutSeconds=1",
	"&watch=false", "&watch=FALSE", "&watch=false&watch=true&timeoutSeconds=1", "&watch=true&watch=false&timeoutSeconds=1",
	"&watch=TRUE&timeoutSeconds=1", "&watch=t&timeoutSeconds=1", "&watch=no&timeoutSeconds=1", "&WATCH=true",
	"&w%61tch=tru%65&timeoutSeconds=1", "&watch=%20false&timeoutSeconds=1", "&watch=%zz", ";watch=true", "?watch=1",
	// Limits twice, and limits that are no number or too large.
	"&limit=1&limit=2", "&limit=&limit=1", "&limit=-1", "&limit=99999999999999999999", "&limit=%2b1", "&limit=0x1", "&limit=1;limit=2",
	"&limit[]=1",
	// A second revision, match or selector. kube-apiserver takes the first.
	"&resourceVersion=1", "&resourceVersion=0", "&x=1&resourceVersion=-1",
	"&resourceVersionMatch=NotOlderThan&resourceVersionMatch=Exact", "&labelSelector=of%3Dteam-a&labelSelector=of%3Dteam-b",
	"&fieldSelector=metadata.name%3Dopen&fieldSelector=metadata.name%3Dshut",
	// Odd values of other parameters, and parameters of watches in a list.
	"&timeout=-1s", "&timeout=forever", "&allowWatchBookmarks=maybe", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
	"&pretty=true",
	// Parameters that kube-apiserver does not know, among them some that name another object or user.
	"&unknown=1", "&=1", "&namespace=team-b", "&name=shut", "&as=admin&impersonate-user=admin&user=admin",
	// Shards, which only some versions of kube-apiserver know.
	"&shardSelector=x",
	"&shardSelector=shardRange(object.metadata.uid,%270x0000000000000000%27,%270x8000000000000000%27)",
	// An empty parameter, a fragment, malformed escapes, and escaped control characters.
	"&", "#x", "&x=%zz", "&%zz=1", "&x=%00", "&labelSelector=%00", "&x=%0d%0aImpersonate-User:%20admin", "&labelSelector=%ff",
	// Selectors that reach further than a right to one name.
	"&fieldSelector=metadata.namespace%3Dteam-b", "&fieldSelector=spec.nodeName%3Dx", "&fieldSelector=data.content%3Dx",
	"&fieldSelector=%3D%3D%3D", "&fieldSelector=metadata.name%3Dshut", "&fieldSelector=metadata.name!%3Dopen",
	"&fieldSelector=metadata.name!%3Dshut", "&fieldSelector=metadata.name%3Dopen,metadata.namespace%3Dteam-b",
	"&fieldSelector=metadata.name%3Dopen,metadata.name%3Dshut", "&fieldSelector=metadata.name%3Dshut,metadata.name%3Dopen",
	"&fieldSelector=metadata.name%3Dopen,", "&fieldSelector=metadata.name%3D", "&fieldSelector=metadata.name%3D*",
	"&fieldSelector=metadata.name%3Dopen/../shut", "&fieldSelector=metadata.name%3DOPEN",
	"&fieldSelector=metadata.name%3Dopen&labelSelector=a",
	"&fieldSelector=metadata.name%3Dopen&continue=" + encodeToken(`{"v":"meta.k8s.io/v1","rv":1,"start":"shut"}`),
	"&labelSelector=" + strings.Repeat("a,", 20_000) + "a", strings.Repeat("&x=1", 10_000),
}

// encodeToken returns the continue token that has this content.
func encodeToken(content string) string { return base64.RawURLEncoding.EncodeToString([]byte(content)) }

// tokenAttacks have continue tokens that no page had. In their JSON, "rv" is a revision (-1: the newest), and "start" is the
// key with which the page begins. Some starts lead out of the namespace, and some revisions are unknown.
func tokenAttacks() []attack {
	contents := []string{
		"x", `{"v":"meta.k8s.io/v1","rv":-1}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"open-0\u0000"}{}`,
		`{"v":"meta.k8s.io/v2","rv":-1,"start":"open-0\u0000"}`, `{"v":"meta.k8s.io/v1","rv":1,"start":"../team-b/\u0000"}`,
		`{"V":"meta.k8s.io/v1","RV":-1,"START":"../team-b/\u0000"}`,
	}
	for _, start := range []string{
		`../team-b/\u0000`, `../../`, `a/../../team-b/shut-0\u0000`, `./open-0`, `/registry/pods/team-b/`, `team-b/shut-0\u0000`, ``,
		`\u0000`, `open-0\u0000`, "open-0\xff", strings.Repeat("z", 20_000), `open-0\u0000","start":"../team-b/\u0000`,
	} {
		contents = append(contents, `{"v":"meta.k8s.io/v1","rv":-1,"start":"`+start+`"}`)
	}
	for _, revision := range []string{"0", "1", "-2", "9223372036854775807", "9223372036854775808", `"1"`, "1.5"} {
		contents = append(contents, `{"v":"meta.k8s.io/v1","rv":`+revision+`,"start":"open-0\u0000"}`)
	}
	const ofA = "/api/v1/namespaces/team-a/pods?"
	padded := base64.URLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"open-0\u0000"} `))
	out := []attack{
		{target: ofA},
		{target: ofA + "limit=2&continue=" + padded},
		{target: ofA + "limit=2&continue=&continue=" + encodeToken(`{"v":"meta.k8s.io/v1","rv":-1,"start":"../team-b/"}`)},
	}
	for _, content := range contents {
		for _, list := range []string{ofA, "/api/v1/pods?"} {
			out = append(out, attack{name: list + " " + nameAfter(content), target: list + "limit=2&continue=" + encodeToken(content)})
		}
	}
	return withUsers(podReaders, out...)
}
