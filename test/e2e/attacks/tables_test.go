package attacks

import (
	"encoding/base64"
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

// withUsers sets the users of those attacks that have none.
func withUsers(users []string, attacks ...attack) []attack {
	for i := range attacks {
		if attacks[i].users == nil {
			attacks[i].users = users
		}
	}
	return attacks
}

// identityAttacks claim to be another user, for a list that the reader may have and for a list that only the admin may have.
func identityAttacks() []attack {
	var out []attack
	// add adds claims by users who may not list all, and by more.
	add := func(lines string, moreForAll, moreForPart, wantHitFor []string) {
		header := strings.Split(lines, "\n")
		out = append(out, attack{
			name: lines + " for all", target: pods, header: header, users: append([]string{reader, nobody, anonymous}, moreForAll...),
		}, attack{
			name: lines + " for one namespace", target: podsOfA, header: header,
			users: append([]string{reader, anonymous}, moreForPart...), wantHitFor: wantHitFor,
		})
	}
	addByCertificate := func(lines string, a attack, want hits) {
		a.name, a.header = lines+" by certificate", strings.Split(lines, "\n")
		out = append(out, readAttacks(a, want)...)
	}
	for _, lines := range impersonations {
		var wantHitFor []string
		if strings.EqualFold(lines, "impersonate-user: alice") {
			wantHitFor = []string{deputy}
		}
		add(lines, []string{admin, deputy}, []string{reviewer, deputy}, wantHitFor)
		// listproxy impersonates the user of a certificate, and kube-apiserver would judge listproxy's right to impersonate
		// others. So such a user may not impersonate anybody.
		addByCertificate(lines, attack{
			users: []string{adminCert, readerCert, withToken(readerCert, admin)}, verdict: refused, wantStatus: http.StatusForbidden,
		}, hits{})
	}
	for _, lines := range claims {
		add(lines, nil, nil, nil)
	}
	for _, lines := range harmlessClaims {
		add(lines, nil, nil, []string{reader})
		addByCertificate(lines, attack{users: []string{readerCert, nobodyCert}}, hits{podsOfA: []string{readerCert}})
	}
	return out
}

// as begins the header that names the impersonated user.
const as = "Impersonate-User: "

// impersonations are headers of which kube-apiserver obeys some, refuses some and ignores the others.
var impersonations = []string{
	// A user, in different letters, none, or two.
	as + "admin", "impersonate-user: admin", "IMPERSONATE-USER: admin", "iMpErSoNaTe-uSeR: admin", as + "alice",
	"IMPERSONATE-user: alice", "Impersonate-User:", as + " ", as + "alice\n" + as + "admin", "Impersonate-User:\n" + as + "admin",
	"impersonate-user: alice\nIMPERSONATE-USER: admin", as + "alice\n" + as + "alice",
	// A service account, a node, nobody.
	as + "system:serviceaccount:team-a:named", as + "system:node:x\nImpersonate-Group: system:nodes", as + "system:anonymous",
	// Groups, with a user and without.
	"Impersonate-Group: system:masters", as + "alice\nImpersonate-Group: system:masters",
	as + "alice\nImpersonate-Group: a\nImpersonate-Group: system:masters", as + "alice\nImpersonate-Group: system:authenticated",
	// A uid and extras.
	"Impersonate-Uid: uid-admin", as + "alice\nImpersonate-Uid: uid-admin", as + "alice\nImpersonate-Uid:",
	"Impersonate-Extra-Scopes: all", as + "alice\nImpersonate-Extra-Scopes: all", as + "alice\nImpersonate-Extra-: all",
	as + "alice\nImpersonate-Extra-%61: y",
	// Headers that kube-apiserver does not know.
	"Impersonate-Something: all", "Impersonate-: all", "Impersonate: admin", "Impersonate_User: admin", as + "alice\nImpersonate-Tomorrow: x",
}

// claims are other headers that name a user or have a token, of which both servers ignore most.
var claims = []string{
	// Headers of front proxies, in names that some servers take for them.
	"X_Remote_User: admin\nX_Remote_Group: system:masters", "x-remote-user: admin\nx-remote-group: system:masters",
	"X-Remote-User: admin\nX-Remote-Uid: 1\nX-Remote-Extra-Scopes: all\nX-Remote-Extra-: all",
	"X-Remote-User: alice\nX-Remote-User: admin",
	// Those of other servers.
	"Remote-User: admin\nX-User: admin\nX-Auth-Request-User: admin\n" +
		"Ssl-Client-Cert: x\nX-Ssl-Client-Cn: admin\nX-Forwarded-Client-Cert: By=admin",
	// The admin's token at another place.
	"Proxy-Authorization: Bearer {token:admin}", "Cookie: Authorization=Bearer {token:admin}; token={token:admin}",
}

// harmlessClaims are headers that both servers ignore, so that a list comes from memory.
var harmlessClaims = []string{
	"X-Remote-User: admin\nX-Remote-Group: system:masters",
	"X-Forwarded-User: admin\nX-Forwarded-Groups: system:masters\nX-Forwarded-For: 10.0.0.1\n" +
		"Forwarded: for=10.0.0.1\nX-Real-Ip: 10.0.0.1",
	"Audience: https://kubernetes.default.svc",
}

// credentialAttacks write Authorization in ways that a parser may misread.
func credentialAttacks() []attack {
	var out []attack
	add := func(wantHitFor []string, lines ...string) {
		name := strings.Join(lines, ", ")
		out = append(
			out,
			attack{
				name: name + " for one namespace", target: podsOfA, header: lines, withoutOwnToken: true, wantHitFor: wantHitFor,
			},
			attack{name: name + " for all", target: pods, header: lines, withoutOwnToken: true},
		)
	}
	asAlice := []string{anonymous} // sends alice's token in these headers
	const authorization, alice, boss = "Authorization: ", "Bearer {token:alice}", "Bearer {token:admin}"
	for _, value := range []string{ // other schemes, and a scheme or a token that is missing, doubled or malformed
		"", "Bearer", "Bearer ", "{token:alice}", "Bearer  {token:alice}", "Bearer\t{token:alice}", alice + " x", alice + ",",
		alice + ", " + boss, `Bearer "{token:alice}"`, "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:admin")),
		"Token {token:alice}", "Negotiate YII=", alice + "\xc3\xa9", alice + "\xff", "Bearer\u00a0{token:alice}",
		"Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiIsImdyb3VwcyI6WyJzeXN0ZW06bWFzdGVycyJdfQ.",
	} {
		add(nil, authorization+value)
	}
	for _, value := range []string{"bearer {token:alice}", "BEARER {token:alice}", "   " + alice, alice + "   "} {
		add(asAlice, authorization+value)
	}
	for _, first := range []string{alice, "", "Basic eDp5", "Bearer x"} {
		add(nil, authorization+first, authorization+boss)
	}
	add(nil, authorization+alice, authorization+alice)
	add(nil, authorization+boss, authorization+alice)
	add(nil, "authorization: "+alice, "AUTHORIZATION: "+boss)
	add(nil)
	token := base64.RawURLEncoding.EncodeToString([]byte("x"))
	add(nil, "Sec-WebSocket-Protocol: "+bearerProtocol+token+", v4.channel.k8s.io")
	return withUsers([]string{anonymous}, append(
		out,
		attack{
			name: "very long", target: podsOfA, header: []string{authorization + "Bearer " + strings.Repeat("x", 100_000)},
			withoutOwnToken: true, verdict: refused,
		},
		attack{
			name: "token in the query", target: pods + "&access_token={token:admin}&token={token:admin}",
			withoutOwnToken: true,
		},
	)...)
}

// targets returns GETs of targets, named after the targets.
func targets(all ...string) []attack {
	var out []attack
	for _, target := range all {
		out = append(out, attack{name: target[:min(len(target), 80)], target: target})
	}
	return out
}

// pathAttacks spell paths so that two parsers may read different requests.
func pathAttacks() []attack {
	var out []attack
	for _, path := range []string{
		// Slashes and dots.
		"//api/v1/pods", "//example.com/api/v1/pods", "///api/v1/pods", "/api//v1/pods", "/api/v1//pods", "/api/v1/pods/", "/api/v1/pods//",
		"/api/v1/./pods", "/api/v1/pods/.", "/api/v1/pods/x/..", "/../api/v1/pods", "/api/v1/namespaces/team-a/../team-b/pods",
		"/api/v1/namespaces/team-a/pods/../../../pods", "/healthz/../api/v1/pods", "/openapi/v2/%2e%2e/%2e%2e/api/v1/pods",
		`/api/v1\pods`, `/api/v1/namespaces/team-a/..\team-b/pods`,
		// Escapes, and what should be escaped.
		"/api/v1/namespaces/team-a/%2e%2e/team-b/pods", "/api/v1/namespaces/team-a/.%2E/team-b/pods", "/api/v1/%2e/pods",
		"/api/v1%2fpods", "/api/v1/namespaces/team-a%2Fpods", "/api/v1/namespaces/team-a%2f..%2fteam-b/pods",
		"/api/v1/namespaces/team-a%2f%2e%2e%2fteam-b/pods", "/api/v1/namespaces/team-a%252fpods", "/api/v1/%70ods",
		"/api/v1/namespaces/team-%61/pods", "/api/v1/pods%00", "/api/v1/namespaces/team-a%00/pods", "/api/v1/pods%0a",
		"/api/v1/pods%0d%0aImpersonate-User:%20admin", "/api/v1/pods%20", "/api/v1/namespaces/team-a%20/pods", "/api/v1/pods%3fwatch=1",
		"/api/v1/pods%23", "/api/v1/namespaces/team-a%c0%af../pods", "/api/v1/pods%ff", "/api/v1/pods%zz", "/api/v1/pods%2",
		"/api/v1/pods;x=1", "/api/v1;x=1/pods", "/api/v1/pods\xc3\xa9", "/api/v1/namespaces/team-\xd0\xb0/pods",
		// Names that are not what they look like.
		"/API/V1/PODS", "/api/v1/Pods", "/api/v1/namespaces/TEAM-A/pods", "/api/v1/namespaces//pods", "/api/v1/namespaces/../pods",
		"/api/v1/namespaces/*/pods", "/api/v1/namespaces/team-a/namespaces/team-b/pods", "/api/v1/namespaces/team-a/namespaces",
		"/api/v1/watch/pods", "/api/v1/watch/namespaces/team-a/pods", "/api/v1/watch/namespaces/team-b/pods", "/api/v1/proxy/pods",
		"/apis//v1/pods", "/apis/core/v1/pods", "/api/pods", "/api/v2/pods", "/api/v1/podz", "/api/v1/*", "/api/v1/pods,configmaps",
		"/api/v1/namespaces/team-a/pods/status", "/api/v1/namespaces/team-b/pods/shut-0", "/api/v1/namespaces/team-b/pods//",
		"/api/v1/namespaces/team-a/configmaps/shut", "/", "/version/api/v1/pods",
		"/api/v1/namespaces/" + strings.Repeat("a", 60_000) + "/pods", "/api/v1" + strings.Repeat("/x", 20_000),
	} {
		out = append(out, targets(path+"?resourceVersion=0&timeoutSeconds=1")...)
	}
	out = append(out, attack{name: "plain", target: pods + "&timeoutSeconds=1", wantHitFor: []string{admin}})
	return withUsers(podReaders, out...)
}

// queryAttacks have queries that two parsers may read differently, and selectors beyond a right.
func queryAttacks() []attack {
	var out []attack
	// addToBothLists adds queries of two lists, with the users who must get each list from memory.
	addToBothLists := func(wantHitFor map[string][]string, queries ...string) {
		for _, list := range []string{podsOfA, configMapsOfA} {
			readers := podReaders
			if list == configMapsOfA {
				readers = []string{named}
			}
			for _, query := range queries {
				for _, a := range targets(list + query) {
					a.users, a.wantHitFor = readers, wantHitFor[list]
					out = append(out, a)
				}
			}
		}
	}
	addToBothLists(map[string][]string{podsOfA: podReaders}, "", "&timeoutSeconds=7", "&labelSelector=")
	addToBothLists(map[string][]string{configMapsOfA: {named}},
		"&fieldSelector=metadata.name%3Dopen", "&fieldSelector=metadata.name%3D%3Dopen", "&fieldSelector=metadata.name=open")
	addToBothLists(
		nil,
		// Spellings of watch, not all of which make the list a watch.
		"&watch=&timeoutSeconds=1", "&watch&timeoutSeconds=1", "&watch=0", "&watch=1&timeoutSeconds=1", "&watch=2&timeoutSeconds=1",
		"&watch=false", "&watch=FALSE", "&watch=false&watch=true&timeoutSeconds=1", "&watch=true&watch=false&timeoutSeconds=1",
		"&watch=TRUE&timeoutSeconds=1", "&watch=t&timeoutSeconds=1", "&watch=no&timeoutSeconds=1", "&WATCH=true",
		"&w%61tch=tru%65&timeoutSeconds=1", "&watch=%20false&timeoutSeconds=1", "&watch=%zz", ";watch=true", "?watch=1",
		// Parameters twice, with odd values, or unknown.
		"&limit=1&limit=2", "&limit=&limit=1", "&limit=-1", "&limit=99999999999999999999", "&limit=%2b1", "&limit=0x1", "&limit=1;limit=2",
		"&limit[]=1", "&resourceVersion=1", "&resourceVersion=0", "&x=1&resourceVersion=-1",
		"&resourceVersionMatch=NotOlderThan&resourceVersionMatch=Exact", "&labelSelector=of%3Dteam-a&labelSelector=of%3Dteam-b",
		"&fieldSelector=metadata.name%3Dopen&fieldSelector=metadata.name%3Dshut", "&timeout=-1s", "&timeout=forever",
		"&allowWatchBookmarks=maybe", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "&pretty=true", "&unknown=1", "&=1",
		"&namespace=team-b", "&name=shut", "&as=admin&impersonate-user=admin&user=admin", "&shardSelector=x",
		"&shardSelector=shardRange(object.metadata.uid,%270x0000000000000000%27,%270x8000000000000000%27)",
		// Odd bytes.
		"&", "#x", "&x=%zz", "&%zz=1", "&x=%00", "&labelSelector=%00", "&x=%0d%0aImpersonate-User:%20admin", "&labelSelector=%ff",
		// Selectors that reach further than a right to one name.
		"&fieldSelector=metadata.namespace%3Dteam-b", "&fieldSelector=spec.nodeName%3Dx", "&fieldSelector=data.content%3Dx",
		"&fieldSelector=%3D%3D%3D", "&fieldSelector=metadata.name%3Dshut", "&fieldSelector=metadata.name!%3Dopen",
		"&fieldSelector=metadata.name!%3Dshut", "&fieldSelector=metadata.name%3Dopen,metadata.namespace%3Dteam-b",
		"&fieldSelector=metadata.name%3Dopen,metadata.name%3Dshut", "&fieldSelector=metadata.name%3Dshut,metadata.name%3Dopen",
		"&fieldSelector=metadata.name%3Dopen,", "&fieldSelector=metadata.name%3D", "&fieldSelector=metadata.name%3D*",
		"&fieldSelector=metadata.name%3Dopen/../shut", "&fieldSelector=metadata.name%3DOPEN",
		"&fieldSelector=metadata.name%3Dopen&labelSelector=a",
		"&fieldSelector=metadata.name%3Dopen&continue="+encodeToken(`{"v":"meta.k8s.io/v1","rv":1,"start":"shut"}`),
		"&labelSelector="+strings.Repeat("a,", 20_000)+"a", strings.Repeat("&x=1", 10_000),
	)
	// The name that named may list in team-a, in other scopes.
	const open = "&fieldSelector=metadata.name%3Dopen"
	out = append(out, withUsers([]string{named}, targets(
		configMaps+open, "/api/v1/namespaces/team-b/configmaps?resourceVersion=0"+open,
	)...)...)
	return append(out, tokenAttacks()...)
}

// encodeToken returns a continue token with a content in JSON.
func encodeToken(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }

// tokenAttacks have continue tokens that lead out of the namespace, or to unknown revisions.
func tokenAttacks() []attack {
	var out []attack
	tokens := []string{"x", `{"v":"meta.k8s.io/v1","rv":-1}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"open-0\u0000"}{}`}
	for _, start := range []string{
		`../team-b/\u0000`, `../../`, `a/../../team-b/shut-0\u0000`, `./open-0`, `/registry/pods/team-b/`, `team-b/shut-0\u0000`, ``,
		`\u0000`, `open-0\u0000`, "open-0\xff", strings.Repeat("z", 20_000), `open-0\u0000","start":"../team-b/\u0000`,
	} {
		tokens = append(tokens, `{"v":"meta.k8s.io/v1","rv":-1,"start":"`+start+`"}`)
	}
	for _, revision := range []string{"0", "1", "-2", "9223372036854775807", "9223372036854775808", `"1"`, "1.5"} {
		tokens = append(tokens, `{"v":"meta.k8s.io/v1","rv":`+revision+`,"start":"open-0\u0000"}`)
	}
	tokens = append(tokens,
		`{"v":"meta.k8s.io/v2","rv":-1,"start":"open-0\u0000"}`, `{"v":"meta.k8s.io/v1","rv":1,"start":"../team-b/\u0000"}`,
		`{"V":"meta.k8s.io/v1","RV":-1,"START":"../team-b/\u0000"}`)
	for _, token := range tokens {
		for _, list := range []string{"/api/v1/namespaces/team-a/pods", "/api/v1/pods"} {
			out = append(out, attack{
				name: list + " " + token[:min(len(token), 80)], target: list + "?limit=2&continue=" + encodeToken(token),
			})
		}
	}
	const ofA = "/api/v1/namespaces/team-a/pods?"
	padded := base64.URLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"open-0\u0000"} `))
	out = append(out, targets(
		ofA, ofA+"limit=2&continue="+padded,
		ofA+"limit=2&continue=&continue="+encodeToken(`{"v":"meta.k8s.io/v1","rv":-1,"start":"../team-b/"}`),
	)...)
	return withUsers(podReaders, out...)
}

// methodAttacks use other methods on what is in memory.
func methodAttacks() []attack {
	var out []attack
	for _, method := range []string{
		http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodPatch, http.MethodDelete + "X",
		"get", "Get", "GETX", "LIST", "WATCH", "PRI", "PROPFIND", "PURGE", "M-SEARCH",
	} {
		out = append(out, attack{name: method, method: method, target: podsOfA})
	}
	for _, header := range []string{"X-Http-Method-Override", "X-Method-Override", "X-Http-Method"} {
		out = append(out, attack{name: header, target: podsOfA, header: []string{header + ": DELETE"}, wantHitFor: podReaders})
	}
	const requestInBody = "GET /api/v1/pods?smuggled=1 HTTP/1.1\r\nHost: x\r\nAudit-Id: smuggled\r\n\r\n"
	json := []string{jsonHeader}
	out = append(out,
		attack{name: "POST, nothing", method: http.MethodPost, target: podsOfA},
		attack{name: "POST, no object", method: http.MethodPost, target: podsOfA, header: json, body: "{}"},
		attack{name: "POST, GET behind", method: http.MethodPost, target: podsOfA, header: json, body: requestInBody},
		attack{name: "DELETE of one that is not", method: http.MethodDelete, target: "/api/v1/namespaces/team-a/pods/none"},
		attack{name: "GET with a body", target: podsOfA, header: json, body: `{"kind":"DeleteOptions"}`},
		attack{name: "GET with a body that is a request", target: podsOfA, body: requestInBody},
		attack{name: "HEAD with a body", method: http.MethodHead, target: podsOfA, body: "x"},
	)
	return withUsers(podReaders, out...)
}

// headerAttacks are about all other headers.
func headerAttacks() []attack {
	var out []attack
	add := func(v verdict, wantHitFor []string, lines string) {
		out = append(out, attack{
			name: lines[:min(len(lines), 80)], target: podsOfA, header: strings.Split(lines, "\n"), users: []string{reader},
			verdict: v, wantHitFor: wantHitFor,
		})
	}
	// A condition that claims a cached copy must not tell who may not list whether the list has changed.
	conditions := []string{
		"Range: bytes=0-9", "If-None-Match: *", `If-Match: "x"`, "If-Modified-Since: Sat, 01 Jan 2050 00:00:00 GMT",
		"If-Unmodified-Since: Sat, 01 Jan 2000 00:00:00 GMT", "Range: bytes=0-9\nIf-Range: \"x\"", "Cache-Control: only-if-cached, max-age=0",
	}
	for _, lines := range conditions {
		out = append(out, attack{
			name: lines + " for all", target: pods, header: strings.Split(lines, "\n"),
			users: []string{admin, reader, named, anonymous},
		})
	}
	for _, lines := range append(
		conditions,
		// Another path or client, as proxies name them.
		"X-Original-Url: /api/v1/pods\nX-Rewrite-Url: /api/v1/pods\nX-Original-Uri: /api/v1/secrets",
		"Forwarded: for=10.0.0.1;host=example.com;proto=http", "X-Forwarded-For: 127.0.0.1",
		"X-Forwarded-Host: example.com\nX-Forwarded-Proto: http\nX-Forwarded-Port: 1\n"+
			"X-Forwarded-Prefix: /x\nX-Forwarded-Uri: /api/v1/secrets",
		// What has no meaning for a list.
		"Te: trailers", "X-Odd: \xff\xfe", "Content-Type: application/json", "Cookie: a=b",
		"Traceparent: 00-11111111111111111111111111111111-2222222222222222-01",
	) {
		add(answeredAsUpstream, []string{reader}, lines)
	}
	for _, lines := range []string{ // what listproxy forwards
		"Origin: https://example.com", "Origin: null", "Origin: https://example.com\nAccess-Control-Request-Method: GET",
		"Accept: text/html",
		"Accept: application/json\nAccept: application/yaml", "Accept: ;;;,,,", "Accept: application/json;as=Secret;v=v1;g=core",
		"Accept: " + strings.Repeat("a/b,", 15_000) + "*/*", "Accept-Encoding: gzip;q=0, *;q=1", "Expect: everything", "Audit-Id: other",
		"User-Agent: Mozilla/5.0",
		"X-Too-Huge: " + strings.Repeat("x", 1_200_000), // kube-apiserver refuses more than 1 MiB itself, in the same way
	} {
		add(answeredAsUpstream, nil, lines)
	}
	// More than the 64 KiB of headers that listproxy reads, and less than the 1 MiB that kube-apiserver reads.
	add(refused, nil, "X-Huge: "+strings.Repeat("x", 500_000))
	add(refused, nil, strings.Repeat("X-Many: x\n", 10_000)+"X-Many: x")
	return out
}

// watchAttacks watch what a user may not list, or with odd parameters, for a second (timeoutSeconds=1).
func watchAttacks() []attack {
	const (
		watch     = "&watch=true&timeoutSeconds=1"
		streaming = watch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		ofA       = "/api/v1/namespaces/team-a/pods?resourceVersion="
	)
	onlyAdmin := targets(pods+watch, pods+streaming, podsOfB+watch, pods+watch+"&fieldSelector=metadata.namespace%3Dteam-a",
		pods+watch+"&labelSelector=of%3Dteam-b")
	for i := range onlyAdmin {
		onlyAdmin[i].wantHitFor = []string{admin}
	}
	forPodReaders := targets(
		podsOfA+watch, podsOfA+streaming, podsOfA+watch+"&fieldSelector=metadata.namespace%3Dteam-b", podsOfA+watch+"&limit=1",
	)
	for i := range forPodReaders {
		forPodReaders[i].wantHitFor = podReaders
	}
	forwarded := targets(
		"/api/v1/pods?resourceVersion=99999999"+watch, ofA+"99999999"+watch, "/api/v1/pods?resourceVersion=1"+watch,
		ofA+"x"+watch,
		podsOfA+watch+"&continue=x", podsOfA+watch+"&resourceVersionMatch=Exact", podsOfA+watch+"&sendInitialEvents=true",
		podsOfA+watch+"&shardSelector=x",
	)
	const watchMaps = configMapsOfA + watch
	ofOne := targets(
		watchMaps+"&fieldSelector=metadata.name%3Dopen", watchMaps+"&fieldSelector=metadata.name%3Dshut",
		watchMaps, watchMaps+"&fieldSelector=metadata.name!%3Dopen",
	)
	return slices.Concat(
		withUsers(podReaders, append(
			slices.Concat(onlyAdmin, forPodReaders, forwarded),
			attack{
				name: "in protobuf", target: pods + watch,
				header: []string{"Accept: application/vnd.kubernetes.protobuf;stream=watch"},
			},
			attack{
				name: "metadata only", target: pods + watch,
				header: []string{"Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
			},
			attack{name: "with a body", target: podsOfA + watch, body: "x"},
			attack{name: "by HEAD", method: http.MethodHead, target: podsOfA + watch},
			attack{name: "as somebody else", target: pods + watch, header: []string{"Impersonate-User: admin"}},
		)...),
		[]attack{{
			name: "as the reader", target: podsOfA + watch, header: []string{"Impersonate-User: alice"},
			users:      []string{admin, nobody, reviewer, deputy},
			wantHitFor: []string{deputy},
		}},
		withUsers([]string{named}, ofOne...),
	)
}

// resourceAttacks try to learn which resources exist and which are kept, and ask for paths of the admin port, none of which
// may be reached at the port for clients.
func resourceAttacks() []attack {
	return withUsers([]string{admin, nobody, stranger}, targets(
		"/api/v1/limitranges?resourceVersion=0", "/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=1",
		"/api/v1/secrets?resourceVersion=0",
		"/api/v1/no-such-things?resourceVersion=0", "/apis/apps/v9/deployments?resourceVersion=0",
		"/apis/authentication.k8s.io/v1/tokenreviews?resourceVersion=0", "/apis/no.such.group/v1/things?resourceVersion=0",
		"/apis/attacks.test/v1/gadgets?resourceVersion=0", "/apis/elsewhere.example/v1/things?resourceVersion=0",
		"/api/v1/namespaces/no-such-namespace/configmaps?resourceVersion=0",
		"/flagz", "/debug/pprof/cmdline", "/metrics/listproxy",
	)...)
}
