package attacks

import (
	"net/http"
	"slices"
	"strings"
)

const (
	podOfA     = "/api/v1/namespaces/team-a/pods/open-0"
	podsOfANow = "/api/v1/namespaces/team-a/pods" // a consistent list, which is forwarded
	onlyOpen   = configMapsOfA + "&fieldSelector=metadata.name%3Dopen"
	// whoAmI is a path that answers with the user, groups and extras.
	whoAmI     = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	reviews    = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	asJSON     = "Content-Type: application/json"
	reviewBody = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview",` +
		`"spec":{"resourceAttributes":{"verb":"list","resource":"pods","namespace":"team-a"}}}`
	whoBody = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
)

// askingWhoAmI returns an attack that asks who its user is, with the other fields of a.
func askingWhoAmI(a attack) attack {
	a.method, a.target, a.body = http.MethodPost, whoAmI, whoBody
	a.header = append([]string{asJSON}, a.header...)
	a.name, a.wantHitFor = a.name+", who", nil
	return a
}

// listsGetAndWho returns four attacks with the other fields of a: for a list that the reader may have, for a list that only
// the admin may have, for an object, and for who the user is. The users wantAllFromMemory must get the second from memory.
func listsGetAndWho(a attack, wantAllFromMemory ...string) []attack {
	list, whole, object := a, a, a
	list.name, list.target = a.name+", list", podsOfA
	whole.name, whole.target, whole.wantHitFor = a.name+", list all", pods, wantAllFromMemory
	object.name, object.target, object.wantHitFor = a.name+", get", podOfA, nil
	return []attack{list, whole, object, askingWhoAmI(a)}
}

// goodCerts are the users whose certificates both servers accept.
var goodCerts = []string{
	adminCert, readerCert, identifiedCert, developerCert, namedCert, accountCert, memberCert, nobodyCert, outsiderCert,
	spelledCert,
}

// podReaderCerts may list podsOfA.
var podReaderCerts = []string{adminCert, readerCert, identifiedCert, developerCert, memberCert}

// certificateAttacks show certificates, alone and with tokens and headers that contradict them.
func certificateAttacks() []attack {
	return slices.Concat(certificateOnly(), certificateAndToken(), badCertificates())
}

// certificateOnly are requests of all kinds by users with a certificate alone. They are no attacks.
func certificateOnly() []attack {
	return withUsers(goodCerts,
		attack{name: "list all", target: pods, wantHitFor: []string{adminCert}},
		attack{name: "list", target: podsOfA, wantHitFor: podReaderCerts},
		attack{name: "list another namespace", target: podsOfB, wantHitFor: []string{adminCert}},
		attack{name: "list by name", target: onlyOpen, wantHitFor: []string{adminCert, namedCert}},
		attack{name: "list beside the name", target: configMapsOfA, wantHitFor: []string{adminCert}},
		attack{name: "list as it is now", target: podsOfANow},
		attack{name: "get", target: podOfA},
		attack{
			name: "watch", target: podsOfA + "&watch=1&timeoutSeconds=1",
			users: []string{readerCert, memberCert, accountCert},
		},
		attack{name: "discovery", target: "/api/v1", users: []string{readerCert, outsiderCert}},
		attack{name: "version", target: "/version", users: []string{readerCert, outsiderCert}},
		askingWhoAmI(attack{name: "by certificate"}),
		attack{name: "may I", method: http.MethodPost, target: reviews, header: []string{asJSON}, body: reviewBody},
		attack{
			name: "create what is there", method: http.MethodPost,
			target: "/api/v1/namespaces/team-a/configmaps", header: []string{asJSON},
			body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"open"}}`,
		},
		attack{
			name: "delete, but not really", method: http.MethodDelete,
			target: "/api/v1/namespaces/team-a/configmaps/open?dryRun=All",
		},
		attack{
			name: "exec without an upgrade", method: http.MethodPost, target: podOfA + "/exec?command=x",
			users: []string{adminCert, readerCert},
		},
	)
}

// certificateAndToken shows a certificate and the token of another user. The request is the certificate's user's.
func certificateAndToken() []attack {
	both := []string{
		with(readerCert, admin), with(readerCert, stranger), with(adminCert, reader), with(nobodyCert, admin),
	}
	out := listsGetAndWho(attack{name: "two users", users: both, wantHitFor: both[:3]}, with(adminCert, reader))
	one := []string{readerCert}
	for _, lines := range []string{
		"Authorization:", "Authorization: Bearer", "Authorization: Basic YWRtaW46YWRtaW4=",
		"Authorization: Bearer {token:admin}\nAuthorization: Bearer {token:alice}", "Proxy-Authorization: Bearer {token:admin}",
		"Sec-WebSocket-Protocol: {bearer:admin}, x",
	} {
		out = append(out, listsGetAndWho(attack{
			name: lines, header: strings.Split(lines, "\n"), users: one, wantHitFor: one, noAuthorization: true,
		})...)
	}
	return out
}

// badCertificates shows certificates that are invalid, and those of users whom listproxy cannot impersonate.
func badCertificates() []attack {
	out := listsGetAndWho(attack{name: "invalid", users: badCerts, want: refusedAlike})
	for _, line := range []string{
		"Authorization: Basic YTph", "Authorization: Bearer ", "Impersonate-User: alice", "X-Remote-User: alice",
	} {
		out = append(out, attack{
			name: "invalid, and " + line, target: podsOfA, header: []string{line}, users: badCerts,
			want: refusedAlike, noAuthorization: true,
		})
	}
	for _, bad := range badCerts {
		good := with(bad, reader)
		out = append(out, listsGetAndWho(attack{
			name: "invalid, and a token", users: []string{good, with(bad, stranger)}, wantHitFor: []string{good},
		})...)
	}
	for _, target := range []string{podsOfA, pods, podOfA} {
		out = append(out, attack{
			name: "cannot be impersonated, " + target, target: target, users: []string{anonymousCert, oddCert}, want: refusedAlike,
		})
	}
	return append(out, listsGetAndWho(attack{
		name: "cannot be impersonated", users: []string{anonymousCert, oddCert, ungroupedCert},
		want: refused, wantStatus: http.StatusForbidden,
	})...)
}
