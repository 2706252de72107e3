package attacks

import (
	"encoding/base64"
	"net/http"
	"strings"
)

// What is attacked: lists that are in memory.
const (
	pods          = "/api/v1/pods?resourceVersion=0"
	podsOfA       = "/api/v1/namespaces/team-a/pods?resourceVersion=0"
	podsOfB       = "/api/v1/namespaces/team-b/pods?resourceVersion=0"
	configMaps    = "/api/v1/configmaps?resourceVersion=0"
	configMapsOfA = "/api/v1/namespaces/team-a/configmaps?resourceVersion=0"
)

var (
	// few stand for everybody where the identity is not what is attacked.
	few = []string{admin, reader, named, anonymous}
	// podReaders may list what podsOfA is.
	podReaders = []string{admin, reader}
)

// by gives attacks their users where they have none.
func by(users []string, attacks ...attack) []attack {
	for i := range attacks {
		if attacks[i].as == nil {
			attacks[i].as = users
		}
	}
	return attacks
}

// identityAttacks claim to be somebody else, for a list that the reader may have and for one that
// only the admin may.
func identityAttacks() []attack {
	var out []attack
	claim := func(name string, lines ...string) {
		out = append(out,
			attack{name: name + " for all", target: pods, header: lines},
			attack{name: name + " for one namespace", target: podsOfA, header: lines})
	}
	// Of these, the API server knows some, refuses some and ignores the rest.
	claim("impersonate user", "Impersonate-User: admin")
	claim("impersonate user in lower case", "impersonate-user: admin")
	claim("impersonate user in upper case", "IMPERSONATE-USER: admin")
	claim("impersonate user in mixed case", "iMpErSoNaTe-uSeR: admin")
	claim("impersonate the empty user", "Impersonate-User:")
	claim("impersonate a blank user", "Impersonate-User:  ")
	claim("impersonate twice", "Impersonate-User: alice", "Impersonate-User: admin")
	claim("impersonate twice, first empty", "Impersonate-User:", "Impersonate-User: admin")
	claim("impersonate in two spellings", "impersonate-user: alice", "IMPERSONATE-USER: admin")
	claim("impersonate group alone", "Impersonate-Group: system:masters")
	claim("impersonate user and group", "Impersonate-User: alice", "Impersonate-Group: system:masters")
	claim("impersonate several groups", "Impersonate-User: alice", "Impersonate-Group: a", "Impersonate-Group: system:masters")
	claim("impersonate uid alone", "Impersonate-Uid: uid-admin")
	claim("impersonate user and uid", "Impersonate-User: alice", "Impersonate-Uid: uid-admin")
	claim("impersonate extra alone", "Impersonate-Extra-Scopes: all")
	claim("impersonate user and extra", "Impersonate-User: alice", "Impersonate-Extra-Scopes: all")
	claim("impersonate extra without a key", "Impersonate-User: alice", "Impersonate-Extra-: all")
	claim("impersonate something unknown", "Impersonate-Something: all")
	claim("impersonate with nothing behind the prefix", "Impersonate-: all")
	claim("impersonate a service account", "Impersonate-User: system:serviceaccount:team-a:named")
	claim("impersonate a node", "Impersonate-User: system:node:x", "Impersonate-Group: system:nodes")
	claim("impersonate anonymous", "Impersonate-User: system:anonymous")
	claim("impersonate oneself", "Impersonate-User: alice")
	claim("impersonate with an underscore", "Impersonate_User: admin")
	claim("remote user with an underscore", "X_Remote_User: admin", "X_Remote_Group: system:masters")
	claim("remote user", "X-Remote-User: admin", "X-Remote-Group: system:masters")
	claim("remote user in lower case", "x-remote-user: admin", "x-remote-group: system:masters")
	claim("remote user in upper case", "X-REMOTE-USER: admin", "X-REMOTE-GROUP: system:masters")
	claim("remote uid and extra", "X-Remote-User: admin", "X-Remote-Uid: 1", "X-Remote-Extra-Scopes: all", "X-Remote-Extra-: all")
	claim("remote user twice", "X-Remote-User: alice", "X-Remote-User: admin")
	claim("forwarded user", "X-Forwarded-User: admin", "X-Forwarded-Email: admin@example.com", "X-Forwarded-Groups: system:masters")
	claim("other authentication proxies' headers", "Remote-User: admin", "X-User: admin", "X-Auth-Request-User: admin", "Ssl-Client-Cert: x", "X-Ssl-Client-Cn: admin", "X-Forwarded-Client-Cert: By=admin")
	claim("authorization of a proxy", "Proxy-Authorization: Bearer {token:admin}")
	claim("token in a cookie", "Cookie: Authorization=Bearer {token:admin}; token={token:admin}")
	claim("audience", "Audience: https://kubernetes.default.svc")

	// Whom it would help.
	poor := []string{reader, nobody, anonymous}
	harmless := map[string]bool{"remote user": true, "remote user in upper case": true, "forwarded user": true, "audience": true}
	for i := range out {
		name, ofA := strings.CutSuffix(out[i].name, " for one namespace")
		if ofA && harmless[name] {
			out[i].hit = []string{reader}
		}
		switch {
		case ofA:
			out[i].as = []string{reader, anonymous}
		case strings.HasPrefix(out[i].name, "impersonate"):
			out[i].as = append([]string{admin, deputy}, poor...)
		default:
			out[i].as = poor
		}
	}
	return out
}

// credentialAttacks write Authorization as nobody would.
func credentialAttacks() []attack {
	var out []attack
	say := func(name string, lines ...string) {
		out = append(out,
			attack{name: name + " for all", target: pods, header: lines, bare: true},
			attack{name: name + " for one namespace", target: podsOfA, header: lines, bare: true})
	}
	const alice, boss = "{token:alice}", "{token:admin}"
	say("none")
	say("empty", "Authorization:")
	say("scheme alone", "Authorization: Bearer")
	say("scheme and a space", "Authorization: Bearer ")
	say("token alone", "Authorization: "+alice)
	say("lower-case scheme", "Authorization: bearer "+alice)
	say("upper-case scheme", "Authorization: BEARER "+alice)
	say("two spaces", "Authorization: Bearer  "+alice)
	say("tab", "Authorization: Bearer\t"+alice)
	say("space before", "Authorization:    Bearer "+alice)
	say("space behind", "Authorization: Bearer "+alice+"   ")
	say("word behind", "Authorization: Bearer "+alice+" x")
	say("comma behind", "Authorization: Bearer "+alice+",")
	say("two in one", "Authorization: Bearer "+alice+", Bearer "+boss)
	say("quoted", `Authorization: Bearer "`+alice+`"`)
	say("basic", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("admin:admin")))
	say("unknown scheme", "Authorization: Token "+alice)
	say("negotiate", "Authorization: Negotiate YII=")
	say("not ASCII", "Authorization: Bearer "+alice+"\xc3\xa9")
	say("not UTF-8", "Authorization: Bearer "+alice+"\xff")
	say("no-break space", "Authorization: Bearer\u00a0"+alice)
	say("reader, admin", "Authorization: Bearer "+alice, "Authorization: Bearer "+boss)
	say("twice the same", "Authorization: Bearer "+alice, "Authorization: Bearer "+alice)
	say("admin, reader", "Authorization: Bearer "+boss, "Authorization: Bearer "+alice)
	say("empty, admin", "Authorization:", "Authorization: Bearer "+boss)
	say("basic, admin", "Authorization: Basic eDp5", "Authorization: Bearer "+boss)
	say("stranger, admin", "Authorization: Bearer x", "Authorization: Bearer "+boss)
	say("two spellings", "authorization: Bearer "+alice, "AUTHORIZATION: Bearer "+boss)
	say("very long", "Authorization: Bearer "+strings.Repeat("x", 100_000))
	say("made-up JWT", "Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiIsImdyb3VwcyI6WyJzeXN0ZW06bWFzdGVycyJdfQ.")
	protocols := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("x"))
	say("made-up token in a websocket protocol", "Sec-WebSocket-Protocol: "+protocols+", v4.channel.k8s.io")
	for i := range out {
		if strings.HasPrefix(out[i].name, "very long for") {
			out[i].want = refused
		}
		if _, ofA := strings.CutSuffix(out[i].name, " for one namespace"); !ofA {
			continue
		}
		switch strings.TrimSuffix(out[i].name, " for one namespace") {
		case "lower-case scheme", "upper-case scheme", "space before", "space behind":
			out[i].hit = []string{anonymous}
		}
	}
	out = append(out, attack{name: "token in the query", target: pods + "&access_token={token:admin}&token={token:admin}", bare: true})
	return by([]string{anonymous}, out...)
}

// pathAttacks spell paths so that two readers may read two things.
func pathAttacks() []attack {
	var out []attack
	for name, path := range map[string]string{
		"plain":                             "/api/v1/pods",
		"double slash first":                "//api/v1/pods",
		"double slash and a host":           "//example.com/api/v1/pods",
		"triple slash":                      "///api/v1/pods",
		"double slash inside":               "/api//v1/pods",
		"double slash before the resource":  "/api/v1//pods",
		"dot":                               "/api/v1/./pods",
		"dot at the end":                    "/api/v1/pods/.",
		"dots":                              "/api/v1/namespaces/team-a/../team-b/pods",
		"dots to the resource":              "/api/v1/namespaces/team-a/pods/../../../pods",
		"dots at the end":                   "/api/v1/pods/x/..",
		"dots above the root":               "/../api/v1/pods",
		"encoded dots":                      "/api/v1/namespaces/team-a/%2e%2e/team-b/pods",
		"half encoded dots":                 "/api/v1/namespaces/team-a/.%2E/team-b/pods",
		"encoded dot":                       "/api/v1/%2e/pods",
		"encoded slash":                     "/api/v1%2fpods",
		"encoded slash in upper case":       "/api/v1/namespaces/team-a%2Fpods",
		"encoded slash in a namespace":      "/api/v1/namespaces/team-a%2f..%2fteam-b/pods",
		"encoded slash and dots":            "/api/v1/namespaces/team-a%2f%2e%2e%2fteam-b/pods",
		"doubly encoded slash":              "/api/v1/namespaces/team-a%252fpods",
		"encoded letter":                    "/api/v1/%70ods",
		"encoded letter in a namespace":     "/api/v1/namespaces/team-%61/pods",
		"encoded NUL":                       "/api/v1/pods%00",
		"encoded NUL in a namespace":        "/api/v1/namespaces/team-a%00/pods",
		"encoded line feed":                 "/api/v1/pods%0a",
		"encoded line and header":           "/api/v1/pods%0d%0aImpersonate-User:%20admin",
		"encoded space":                     "/api/v1/pods%20",
		"encoded space in a namespace":      "/api/v1/namespaces/team-a%20/pods",
		"encoded question mark":             "/api/v1/pods%3fwatch=1",
		"encoded hash":                      "/api/v1/pods%23",
		"overlong encoding":                 "/api/v1/namespaces/team-a%c0%af../pods",
		"encoded not UTF-8":                 "/api/v1/pods%ff",
		"bad escape":                        "/api/v1/pods%zz",
		"half an escape":                    "/api/v1/pods%2",
		"semicolon":                         "/api/v1/pods;x=1",
		"semicolon in the middle":           "/api/v1;x=1/pods",
		"backslash":                         `/api/v1\pods`,
		"backslash dots":                    `/api/v1/namespaces/team-a/..\team-b/pods`,
		"trailing slash":                    "/api/v1/pods/",
		"two trailing slashes":              "/api/v1/pods//",
		"upper case":                        "/API/V1/PODS",
		"upper-case resource":               "/api/v1/Pods",
		"upper-case namespace":              "/api/v1/namespaces/TEAM-A/pods",
		"watch prefix":                      "/api/v1/watch/pods",
		"watch prefix in a namespace":       "/api/v1/watch/namespaces/team-a/pods",
		"watch prefix of another namespace": "/api/v1/watch/namespaces/team-b/pods",
		"proxy prefix":                      "/api/v1/proxy/pods",
		"empty namespace":                   "/api/v1/namespaces//pods",
		"namespace of dots":                 "/api/v1/namespaces/../pods",
		"wildcard namespace":                "/api/v1/namespaces/*/pods",
		"two namespaces":                    "/api/v1/namespaces/team-a/namespaces/team-b/pods",
		"namespaces of a namespace":         "/api/v1/namespaces/team-a/namespaces",
		"core group by name":                "/apis//v1/pods",
		"core group as core":                "/apis/core/v1/pods",
		"no version":                        "/api/pods",
		"other version":                     "/api/v2/pods",
		"unknown resource":                  "/api/v1/podz",
		"wildcard resource":                 "/api/v1/*",
		"subresource of a list":             "/api/v1/namespaces/team-a/pods/status",
		"comma":                             "/api/v1/pods,configmaps",
		"one object":                        "/api/v1/namespaces/team-b/pods/shut-0",
		"one object, empty name":            "/api/v1/namespaces/team-b/pods//",
		"one namespace, others' config map": "/api/v1/namespaces/team-a/configmaps/shut",
		"not ASCII":                         "/api/v1/pods\xc3\xa9",
		"letters like others":               "/api/v1/namespaces/team-\xd0\xb0/pods",
		"root":                              "/",
		"very long":                         "/api/v1/namespaces/" + strings.Repeat("a", 60_000) + "/pods",
		"very deep":                         "/api/v1" + strings.Repeat("/x", 20_000),
		"healthz with dots":                 "/healthz/../api/v1/pods",
		"openapi with dots":                 "/openapi/v2/%2e%2e/%2e%2e/api/v1/pods",
		"version with a list behind":        "/version/api/v1/pods",
	} {
		a := attack{name: name, target: path + "?resourceVersion=0&timeoutSeconds=1"}
		if name == "plain" {
			a.hit = []string{admin}
		}
		out = append(out, a)
	}
	return by(podReaders, out...)
}

// queryAttacks say two things in one query, or none.
func queryAttacks() []attack {
	made := func(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }
	var out []attack
	for name, query := range map[string]string{
		"plain":                             "",
		"only an and":                       "&",
		"hash":                              "#x",
		"watch empty":                       "&watch=&timeoutSeconds=1",
		"watch without a value":             "&watch&timeoutSeconds=1",
		"watch 0":                           "&watch=0",
		"watch 1":                           "&watch=1&timeoutSeconds=1",
		"watch 2":                           "&watch=2&timeoutSeconds=1",
		"watch false":                       "&watch=false",
		"watch FALSE":                       "&watch=FALSE",
		"watch false, true":                 "&watch=false&watch=true&timeoutSeconds=1",
		"watch true, false":                 "&watch=true&watch=false&timeoutSeconds=1",
		"watch TRUE":                        "&watch=TRUE&timeoutSeconds=1",
		"watch t":                           "&watch=t&timeoutSeconds=1",
		"watch no":                          "&watch=no&timeoutSeconds=1",
		"WATCH true":                        "&WATCH=true",
		"encoded watch":                     "&w%61tch=tru%65&timeoutSeconds=1",
		"watch with a space":                "&watch=%20false&timeoutSeconds=1",
		"limit twice":                       "&limit=1&limit=2",
		"limit twice, one empty":            "&limit=&limit=1",
		"limit negative":                    "&limit=-1",
		"limit huge":                        "&limit=99999999999999999999",
		"limit with a plus":                 "&limit=%2b1",
		"limit in hexadecimal":              "&limit=0x1",
		"revision twice":                    "&resourceVersion=1",
		"revision twice, the same":          "&resourceVersion=0",
		"match twice":                       "&resourceVersionMatch=NotOlderThan&resourceVersionMatch=Exact",
		"labels twice":                      "&labelSelector=of%3Dteam-a&labelSelector=of%3Dteam-b",
		"fields twice":                      "&fieldSelector=metadata.name%3Dopen&fieldSelector=metadata.name%3Dshut",
		"semicolon":                         "&limit=1;limit=2",
		"semicolon first":                   ";watch=true",
		"bad escape":                        "&x=%zz",
		"bad escape in watch":               "&watch=%zz",
		"bad escape in a key":               "&%zz=1",
		"NUL":                               "&x=%00",
		"NUL in labels":                     "&labelSelector=%00",
		"line and header":                   "&x=%0d%0aImpersonate-User:%20admin",
		"not UTF-8":                         "&labelSelector=%ff",
		"unknown":                           "&unknown=1",
		"empty key":                         "&=1",
		"second question mark":              "?watch=1",
		"array":                             "&limit[]=1",
		"other namespace":                   "&namespace=team-b",
		"other name":                        "&name=shut",
		"impersonation":                     "&as=admin&impersonate-user=admin&user=admin",
		"shards":                            "&shardSelector=shardRange(object.metadata.uid,%270x0000000000000000%27,%270x8000000000000000%27)",
		"shards, malformed":                 "&shardSelector=x",
		"pretty":                            "&pretty=true",
		"field of another namespace":        "&fieldSelector=metadata.namespace%3Dteam-b",
		"field of another resource":         "&fieldSelector=spec.nodeName%3Dx",
		"field unknown":                     "&fieldSelector=data.content%3Dx",
		"field malformed":                   "&fieldSelector=%3D%3D%3D",
		"name open":                         "&fieldSelector=metadata.name%3Dopen",
		"name open, two equals":             "&fieldSelector=metadata.name%3D%3Dopen",
		"name open, unencoded":              "&fieldSelector=metadata.name=open",
		"name shut":                         "&fieldSelector=metadata.name%3Dshut",
		"name not open":                     "&fieldSelector=metadata.name!%3Dopen",
		"name not shut":                     "&fieldSelector=metadata.name!%3Dshut",
		"name open and namespace":           "&fieldSelector=metadata.name%3Dopen,metadata.namespace%3Dteam-b",
		"name open and shut":                "&fieldSelector=metadata.name%3Dopen,metadata.name%3Dshut",
		"name shut and open":                "&fieldSelector=metadata.name%3Dshut,metadata.name%3Dopen",
		"name open, then nothing":           "&fieldSelector=metadata.name%3Dopen,",
		"name empty":                        "&fieldSelector=metadata.name%3D",
		"name a wildcard":                   "&fieldSelector=metadata.name%3D*",
		"name with a slash":                 "&fieldSelector=metadata.name%3Dopen/../shut",
		"name in upper case":                "&fieldSelector=metadata.name%3DOPEN",
		"name open and a label":             "&fieldSelector=metadata.name%3Dopen&labelSelector=a",
		"name and continue":                 "&fieldSelector=metadata.name%3Dopen&continue=" + made(`{"v":"meta.k8s.io/v1","rv":1,"start":"shut"}`),
		"selectors huge":                    "&labelSelector=" + strings.Repeat("a,", 20_000) + "a",
		"parameters many":                   strings.Repeat("&x=1", 10_000),
		"send initial events":               "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"revision negative":                 "&x=1&resourceVersion=-1",
		"timeout negative":                  "&timeout=-1s",
		"timeout malformed":                 "&timeout=forever",
		"bookmarks":                         "&allowWatchBookmarks=maybe",
		"in memory, with timeoutSeconds":    "&timeoutSeconds=7",
		"in memory, with an empty selector": "&labelSelector=",
	} {
		for _, list := range []string{podsOfA, configMapsOfA} {
			a := attack{name: name + " of " + list[len("/api/v1/namespaces/team-a/"):len(list)-len("?resourceVersion=0")], target: list + query, as: podReaders}
			if list == configMapsOfA {
				a.as = []string{named}
			}
			switch {
			case name == "name open" && list == configMapsOfA, name == "name open, two equals" && list == configMapsOfA, name == "name open, unencoded" && list == configMapsOfA:
				a.hit = []string{named}
			case (name == "plain" || strings.HasPrefix(name, "in memory")) && list == podsOfA:
				a.hit = podReaders
			}
			out = append(out, a)
		}
	}
	// Continue tokens that leave the namespace, or the known.
	for name, token := range map[string]string{
		"another namespace":         `{"v":"meta.k8s.io/v1","rv":1,"start":"../team-b/\u0000"}`,
		"another namespace, newest": `{"v":"meta.k8s.io/v1","rv":-1,"start":"../team-b/\u0000"}`,
		"dots":                      `{"v":"meta.k8s.io/v1","rv":-1,"start":"../../"}`,
		"dots behind":               `{"v":"meta.k8s.io/v1","rv":-1,"start":"a/../../team-b/shut-0\u0000"}`,
		"one dot":                   `{"v":"meta.k8s.io/v1","rv":-1,"start":"./open-0"}`,
		"absolute":                  `{"v":"meta.k8s.io/v1","rv":-1,"start":"/registry/pods/team-b/"}`,
		"namespace in the key":      `{"v":"meta.k8s.io/v1","rv":-1,"start":"team-b/shut-0\u0000"}`,
		"empty key":                 `{"v":"meta.k8s.io/v1","rv":-1,"start":""}`,
		"no key":                    `{"v":"meta.k8s.io/v1","rv":-1}`,
		"NUL":                       `{"v":"meta.k8s.io/v1","rv":-1,"start":"\u0000"}`,
		"newest":                    `{"v":"meta.k8s.io/v1","rv":-1,"start":"open-0\u0000"}`,
		"revision 0":                `{"v":"meta.k8s.io/v1","rv":0,"start":"open-0\u0000"}`,
		"revision 1":                `{"v":"meta.k8s.io/v1","rv":1,"start":"open-0\u0000"}`,
		"revision below":            `{"v":"meta.k8s.io/v1","rv":-2,"start":"open-0\u0000"}`,
		"revision huge":             `{"v":"meta.k8s.io/v1","rv":9223372036854775807,"start":"open-0\u0000"}`,
		"revision too huge":         `{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"open-0\u0000"}`,
		"revision a string":         `{"v":"meta.k8s.io/v1","rv":"1","start":"open-0\u0000"}`,
		"revision a fraction":       `{"v":"meta.k8s.io/v1","rv":1.5,"start":"open-0\u0000"}`,
		"version":                   `{"v":"meta.k8s.io/v2","rv":-1,"start":"open-0\u0000"}`,
		"members twice":             `{"v":"meta.k8s.io/v1","rv":-1,"start":"open-0\u0000","start":"../team-b/\u0000"}`,
		"members in another case":   `{"V":"meta.k8s.io/v1","RV":-1,"START":"../team-b/\u0000"}`,
		"not JSON":                  `x`,
		"something behind":          `{"v":"meta.k8s.io/v1","rv":-1,"start":"open-0\u0000"}{}`,
		"key not UTF-8":             "{\"v\":\"meta.k8s.io/v1\",\"rv\":-1,\"start\":\"open-0\xff\"}",
		"key huge":                  `{"v":"meta.k8s.io/v1","rv":-1,"start":"` + strings.Repeat("z", 20_000) + `"}`,
	} {
		for _, list := range []string{"/api/v1/namespaces/team-a/pods", "/api/v1/pods"} {
			out = append(out, attack{as: podReaders, name: "continue of " + list[len("/api/v1/"):] + ", " + name, target: list + "?limit=2&continue=" + made(token)})
		}
	}
	out = append(out,
		attack{name: "continue padded", target: "/api/v1/namespaces/team-a/pods?limit=2&continue=" +
			base64.URLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"open-0\u0000"} `))},
		attack{name: "continue twice", target: "/api/v1/namespaces/team-a/pods?limit=2&continue=&continue=" +
			made(`{"v":"meta.k8s.io/v1","rv":-1,"start":"../team-b/"}`)},
		attack{name: "nothing but a question mark", target: "/api/v1/namespaces/team-a/pods?"},
	)
	return by(podReaders, out...)
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
		out = append(out, attack{name: header, target: podsOfA, header: []string{header + ": DELETE"}, hit: podReaders})
	}
	out = append(out,
		attack{name: "POST, nothing", method: http.MethodPost, target: podsOfA},
		attack{name: "POST, no object", method: http.MethodPost, target: podsOfA, header: []string{"Content-Type: application/json"}, body: "{}"},
		attack{
			name: "POST, GET behind", method: http.MethodPost, target: podsOfA,
			header: []string{"Content-Type: application/json"},
			body:   "GET /api/v1/pods?smuggled=1 HTTP/1.1\r\nHost: x\r\nAudit-Id: smuggled\r\n\r\n",
		},
		attack{name: "DELETE of one that is not", method: http.MethodDelete, target: "/api/v1/namespaces/team-a/pods/none"},
		attack{name: "GET with a body", target: podsOfA, header: []string{"Content-Type: application/json"}, body: `{"kind":"DeleteOptions"}`},
		attack{
			name: "GET with a body that is a request", target: podsOfA,
			body: "GET /api/v1/pods?smuggled=1 HTTP/1.1\r\nHost: x\r\nAudit-Id: smuggled\r\n\r\n",
		},
		attack{name: "HEAD with a body", method: http.MethodHead, target: podsOfA, body: "x"},
	)
	return by(podReaders, out...)
}

// headerAttacks are about all other headers.
func headerAttacks() []attack {
	out := []attack{
		{name: "range", header: []string{"Range: bytes=0-9"}, hit: []string{reader}},
		{name: "if-none-match any", header: []string{"If-None-Match: *"}, hit: []string{reader}},
		{name: "if-match", header: []string{`If-Match: "x"`}, hit: []string{reader}},
		{name: "if-modified-since", header: []string{"If-Modified-Since: Sat, 01 Jan 2050 00:00:00 GMT"}, hit: []string{reader}},
		{name: "if-unmodified-since", header: []string{"If-Unmodified-Since: Sat, 01 Jan 2000 00:00:00 GMT"}, hit: []string{reader}},
		{name: "if-range", header: []string{"Range: bytes=0-9", `If-Range: "x"`}, hit: []string{reader}},
		{name: "cache-control", header: []string{"Cache-Control: only-if-cached, max-age=0"}, hit: []string{reader}},
		{name: "origin", header: []string{"Origin: https://example.com"}},
		{name: "origin null", header: []string{"Origin: null"}},
		{name: "preflight", header: []string{"Origin: https://example.com", "Access-Control-Request-Method: GET"}},
		{name: "original url", header: []string{"X-Original-Url: /api/v1/pods", "X-Rewrite-Url: /api/v1/pods", "X-Original-Uri: /api/v1/secrets"}, hit: []string{reader}},
		{name: "forwarded", header: []string{"Forwarded: for=10.0.0.1;host=example.com;proto=http"}, hit: []string{reader}},
		{name: "forwarded for", header: []string{"X-Forwarded-For: 127.0.0.1"}, hit: []string{reader}},
		{name: "forwarded host", header: []string{"X-Forwarded-Host: example.com", "X-Forwarded-Proto: http", "X-Forwarded-Port: 1", "X-Forwarded-Prefix: /x", "X-Forwarded-Uri: /api/v1/secrets"}, hit: []string{reader}},
		{name: "accept unknown", header: []string{"Accept: text/html"}},
		{name: "accept twice", header: []string{"Accept: application/json", "Accept: application/yaml"}},
		{name: "accept malformed", header: []string{"Accept: ;;;,,,"}},
		{name: "accept as something", header: []string{"Accept: application/json;as=Secret;v=v1;g=core"}},
		{name: "accept huge", header: []string{"Accept: " + strings.Repeat("a/b,", 15_000) + "*/*"}},
		{name: "accept-encoding odd", header: []string{"Accept-Encoding: gzip;q=0, *;q=1"}},
		{name: "te", header: []string{"Te: trailers"}, hit: []string{reader}},
		{name: "expect unknown", header: []string{"Expect: everything"}},
		{name: "10,000 headers", header: manyHeaders(10_000), want: refused}, // more than 64 KiB, as those below
		{name: "huge header", header: []string{"X-Huge: " + strings.Repeat("x", 500_000)}, want: refused},
		{name: "too huge a header", header: []string{"X-Huge: " + strings.Repeat("x", 1_200_000)}},
		{name: "not UTF-8", header: []string{"X-Odd: \xff\xfe"}, hit: []string{reader}},
		{name: "audit id twice", header: []string{"Audit-Id: other"}},
		{name: "traceparent", header: []string{"Traceparent: 00-11111111111111111111111111111111-2222222222222222-01"}, hit: []string{reader}},
		{name: "content type alone", header: []string{"Content-Type: application/json"}, hit: []string{reader}},
		{name: "user agent twice", header: []string{"User-Agent: Mozilla/5.0"}},
		{name: "cookie", header: []string{"Cookie: a=b"}, hit: []string{reader}},
	}
	for i := range out {
		out[i].target, out[i].as = podsOfA, []string{reader}
		if i < 8 { // whether a list of another's can be had by them
			out = append(out, attack{name: out[i].name + " for all", target: pods, header: out[i].header, as: few})
		}
	}
	return out
}

func manyHeaders(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "X-Many: x"
	}
	return out
}
