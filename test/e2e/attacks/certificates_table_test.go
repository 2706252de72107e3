package attacks

import (
	"net/http"
	"slices"
)

const (
	podOfA     = "/api/v1/namespaces/team-a/pods/open-0"
	podsOfANow = "/api/v1/namespaces/team-a/pods" // podsOfANow is a consistent list, which is forwarded.
	// openConfigMap is a list of configMapsOfA that selects the one with the name "open".
	openConfigMap = configMapsOfA + "&fieldSelector=metadata.name%3Dopen"
	jsonHeader    = "Content-Type: application/json"
	// kube-apiserver answers a POST of whoAmIBody to whoAmIPath with the user, groups and extras.
	whoAmIPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	whoAmIBody = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	// kube-apiserver answers a POST of mayIBody to mayIPath with whether the user may list podsOfA.
	mayIPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	mayIBody = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview",` +
		`"spec":{"resourceAttributes":{"verb":"list","resource":"pods","namespace":"team-a"}}}`
)

// whoAmIAttack returns a copy of base that asks kube-apiserver who the sender is. The other fields, such as users, stay.
func whoAmIAttack(base attack) attack {
	a := base
	a.name += ", who"
	a.method, a.target = http.MethodPost, whoAmIPath
	a.body = whoAmIBody
	a.header = jsonHeader
	if base.header != "" {
		a.header += "\n" + base.header
	}
	return a
}

// hits names the users of some attacks who must get the list podsOfA from memory, and those who must get the list pods from
// memory.
type hits struct {
	podsOfA []string
	pods    []string
}

// readAttacks returns four copies of base. The first lists podsOfA, which the reader may do. The second lists pods, which only
// the admin may do. The third gets a pod, and the fourth is base's whoAmIAttack. want says for the two lists who must get them
// from memory.
func readAttacks(base attack, want hits) []attack {
	variant := func(name, target string, wantHitFor []string) attack {
		a := base
		a.name = base.name + ", " + name
		a.target = target
		a.wantHitFor = wantHitFor
		return a
	}
	return []attack{
		variant("list", podsOfA, want.podsOfA),
		variant("list all", pods, want.pods),
		variant("get", podOfA, nil),
		whoAmIAttack(base),
	}
}

// goodCerts are the users whose certificates both servers accept.
var goodCerts = []string{
	adminCert, readerCert, identifiedCert, developerCert, namedCert, accountCert, memberCert, nobodyCert, outsiderCert,
	spelledCert,
}

// podReaderCerts are the users with a certificate who may list podsOfA.
var podReaderCerts = []string{adminCert, readerCert, identifiedCert, developerCert, memberCert}

// certificateAttacks present certificates, alone and with tokens and headers that contradict them.
func certificateAttacks() []attack {
	return slices.Concat(
		requestsByCertificate(), certificatesWithToken(),
		invalidCertificates(), invalidCertificatesWithToken(), certificatesOfOddUsers(),
	)
}

// requestsByCertificate are requests of all kinds with a valid certificate and no other credentials. None is malformed. They
// would show that a user gets what only another user may have.
func requestsByCertificate() []attack {
	return withUsers(goodCerts,
		attack{name: "list all", target: pods, wantHitFor: []string{adminCert}},
		attack{name: "list", target: podsOfA, wantHitFor: podReaderCerts},
		attack{name: "list another namespace", target: podsOfB, wantHitFor: []string{adminCert}},
		attack{name: "list of one name", target: openConfigMap, wantHitFor: []string{adminCert, namedCert}},
		attack{name: "list of all, where a user may read one", target: configMapsOfA, wantHitFor: []string{adminCert}},
		attack{name: "list as it is now", target: podsOfANow},
		attack{name: "get", target: podOfA},
		attack{name: "watch", target: podsOfA + "&watch=1&timeoutSeconds=1", users: []string{readerCert, memberCert, accountCert}},
		attack{name: "discovery", target: "/api/v1", users: []string{readerCert, outsiderCert}},
		attack{name: "version", target: "/version", users: []string{readerCert, outsiderCert}},
		whoAmIAttack(attack{name: "by certificate"}),
		attack{name: "may I", method: http.MethodPost, target: mayIPath, header: jsonHeader, body: mayIBody},
		attack{
			name: "create what exists", method: http.MethodPost,
			target: "/api/v1/namespaces/team-a/configmaps", header: jsonHeader,
			body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"open"}}`,
		},
		attack{name: "delete in a dry run", method: http.MethodDelete, target: "/api/v1/namespaces/team-a/configmaps/open?dryRun=All"},
		attack{
			name: "exec without an upgrade", method: http.MethodPost, target: podOfA + "/exec?command=x",
			users: []string{adminCert, readerCert},
		},
	)
}

// certificatesWithToken present a valid certificate and the token of another user. kube-apiserver ignores the token.
func certificatesWithToken() []attack {
	adminWithToken := withToken(adminCert, reader)
	ofPodReaders := []string{withToken(readerCert, admin), withToken(readerCert, stranger), adminWithToken}
	users := slices.Concat(ofPodReaders, []string{withToken(nobodyCert, admin)})
	out := readAttacks(attack{name: "two users", users: users}, hits{podsOfA: ofPodReaders, pods: []string{adminWithToken}})
	for _, header := range []string{
		"Authorization:", "Authorization: Bearer", "Authorization: Basic YWRtaW46YWRtaW4=",
		"Authorization: Bearer {token:admin}\nAuthorization: Bearer {token:alice}", "Proxy-Authorization: Bearer {token:admin}",
		"Sec-WebSocket-Protocol: {bearer:admin}, x",
	} {
		out = append(out, readAttacks(attack{
			name: header, header: header, users: []string{readerCert}, withoutOwnToken: true,
		}, hits{podsOfA: []string{readerCert}})...)
	}
	return out
}

// invalidCertificates present an invalid certificate, alone or with a header that names a user but has no token. kube-apiserver
// refuses them, and listproxy must refuse them with the same status.
func invalidCertificates() []attack {
	out := readAttacks(attack{name: "invalid", users: badCerts, verdict: refusedAlike}, hits{})
	for _, header := range []string{
		"Authorization: Basic YTph", "Authorization: Bearer ", "Impersonate-User: alice", "X-Remote-User: alice",
	} {
		out = append(out, attack{
			target: podsOfA, header: header, users: badCerts,
			verdict: refusedAlike, withoutOwnToken: true,
		})
	}
	return out
}

// invalidCertificatesWithToken present an invalid certificate and a token. kube-apiserver ignores the certificate.
func invalidCertificatesWithToken() []attack {
	var out []attack
	for _, invalid := range badCerts {
		ofReader, ofStranger := withToken(invalid, reader), withToken(invalid, stranger)
		out = append(out, readAttacks(
			attack{name: "invalid, and a token", users: []string{ofReader, ofStranger}}, hits{podsOfA: []string{ofReader}},
		)...)
	}
	return out
}

// certificatesOfOddUsers present valid certificates of users whom listproxy cannot impersonate.
func certificatesOfOddUsers() []attack {
	return readAttacks(attack{
		name: "cannot be impersonated", users: []string{anonymousCert, oddCert, ungroupedCert},
		verdict: refused, wantStatus: http.StatusForbidden,
	}, hits{})
}
