package attacks

import (
	"net/http"
	"slices"
	"strings"
)

const (
	podOfA     = "/api/v1/namespaces/team-a/pods/open-0"
	podsOfANow = "/api/v1/namespaces/team-a/pods" // which is forwarded
	onlyOpen   = configMapsOfA + "&fieldSelector=metadata.name%3Dopen"
	// whoAmI is answered with the whole user.
	whoAmI     = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	reviews    = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	asJSON     = "Content-Type: application/json"
	reviewBody = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"list","resource":"pods","namespace":"team-a"}}}`
	whoBody    = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
)

// who is the question who somebody is.
func who(a attack) attack {
	a.method, a.target, a.body = http.MethodPost, whoAmI, whoBody
	a.header = append([]string{asJSON}, a.header...)
	a.name, a.hit = a.name+", who", nil
	return a
}

// asking is an attack that asks for a list that the reader may have; for one that only the admin may,
// which from memory all are to get; for an object; and who one is.
func asking(a attack, all ...string) []attack {
	list, whole, object := a, a, a
	list.name, list.target = a.name+", list", podsOfA
	whole.name, whole.target, whole.hit = a.name+", list all", pods, all
	object.name, object.target, object.hit = a.name+", get", podOfA, nil
	return []attack{list, whole, object, who(a)}
}

// goodCerts are users whom both servers know by a certificate.
var goodCerts = []string{
	adminCert, readerCert, identifiedCert, developerCert, namedCert, accountCert, memberCert, nobodyCert, outsiderCert, spelledCert,
}

// podReaderCerts may list what podsOfA is.
var podReaderCerts = []string{adminCert, readerCert, identifiedCert, developerCert, memberCert}

// certificateAttacks come with certificates, and with what does not go with them.
func certificateAttacks() []attack {
	return slices.Concat(knownByCertificate(), certificateAndToken(), unbelievedCertificates())
}

// knownByCertificate is all that one can do, by those who have nothing but a certificate.
func knownByCertificate() []attack {
	return by(goodCerts,
		attack{name: "list all", target: pods, hit: []string{adminCert}},
		attack{name: "list", target: podsOfA, hit: podReaderCerts},
		attack{name: "list another namespace", target: podsOfB, hit: []string{adminCert}},
		attack{name: "list by name", target: onlyOpen, hit: []string{adminCert, namedCert}},
		attack{name: "list beside the name", target: configMapsOfA, hit: []string{adminCert}},
		attack{name: "list as it is now", target: podsOfANow},
		attack{name: "get", target: podOfA},
		attack{name: "watch", target: podsOfA + "&watch=1&timeoutSeconds=1", as: []string{readerCert, memberCert, accountCert}},
		attack{name: "discovery", target: "/api/v1", as: []string{readerCert, outsiderCert}},
		attack{name: "version", target: "/version", as: []string{readerCert, outsiderCert}},
		who(attack{name: "by certificate"}),
		attack{name: "may I", method: http.MethodPost, target: reviews, header: []string{asJSON}, body: reviewBody},
		attack{
			name: "create what is there", method: http.MethodPost, target: "/api/v1/namespaces/team-a/configmaps", header: []string{asJSON},
			body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"open"}}`,
		},
		attack{name: "delete, but not really", method: http.MethodDelete, target: "/api/v1/namespaces/team-a/configmaps/open?dryRun=All"},
		attack{name: "exec without an upgrade", method: http.MethodPost, target: podOfA + "/exec?command=x", as: []string{adminCert, readerCert}},
	)
}

// certificateAndToken is a certificate and a token, of two users. The certificate's counts.
func certificateAndToken() []attack {
	both := []string{
		with(readerCert, admin), with(readerCert, stranger), with(adminCert, reader), with(nobodyCert, admin),
	}
	out := asking(attack{name: "two users", as: both, hit: both[:3]}, with(adminCert, reader))
	one := []string{readerCert}
	for _, lines := range []string{
		"Authorization:", "Authorization: Bearer", "Authorization: Basic YWRtaW46YWRtaW4=",
		"Authorization: Bearer {token:admin}\nAuthorization: Bearer {token:alice}", "Proxy-Authorization: Bearer {token:admin}",
		"Sec-WebSocket-Protocol: {bearer:admin}, x",
	} {
		out = append(out, asking(attack{name: lines, header: strings.Split(lines, "\n"), as: one, hit: one, bare: true})...)
	}
	return out
}

// unbelievedCertificates are those that are wrong, and those whose user cannot be stated.
func unbelievedCertificates() []attack {
	out := asking(attack{name: "unbelieved", as: badCerts, want: refusedAlike})
	for _, line := range []string{"Authorization: Basic YTph", "Authorization: Bearer ", "Impersonate-User: alice", "X-Remote-User: alice"} {
		out = append(out, attack{name: "unbelieved, and " + line, target: podsOfA, header: []string{line}, as: badCerts, want: refusedAlike, bare: true})
	}
	for _, bad := range badCerts {
		good := with(bad, reader)
		out = append(out, asking(attack{name: "unbelieved, a token", as: []string{good, with(bad, stranger)}, hit: []string{good}})...)
	}
	for _, target := range []string{podsOfA, pods, podOfA} {
		out = append(out, attack{name: "cannot be stated, " + target, target: target, as: []string{anonymousCert, oddCert}, want: refusedAlike})
	}
	return append(out, asking(attack{
		name: "cannot be stated", as: []string{anonymousCert, oddCert, ungroupedCert}, want: refused, status: http.StatusForbidden,
	})...)
}
