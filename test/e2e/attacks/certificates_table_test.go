package attacks

import (
	"net/http"
	"slices"
	"strings"
)

const (
	podOfA     = "/api/v1/namespaces/team-a/pods/open-0"
	podsOfANow = "/api/v1/namespaces/team-a/pods" // a consistent list, which is forwarded
	// mapOpen is the list of the ConfigMap "open" alone.
	mapOpen = configMapsOfA + "&fieldSelector=metadata.name%3Dopen"
	// whoAmI is a path that answers with the user, groups and extras.
	whoAmI     = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	reviews    = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	asJSON     = "Content-Type: application/json"
	reviewBody = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview",` +
		`"spec":{"resourceAttributes":{"verb":"list","resource":"pods","namespace":"team-a"}}}`
	whoBody = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
)

// askingWhoAmI returns an attack that asks who its user is, with the other fields of base.
func askingWhoAmI(base attack) attack {
	a := base
	a.name += ", who"
	a.method, a.target, a.body = http.MethodPost, whoAmI, whoBody
	a.header = slices.Concat([]string{asJSON}, base.header)
	return a
}

// hits names the users who must get lists from memory.
type hits struct {
	list    []string // that of podsOfA
	listAll []string // that of pods
}

// listsGetAndWho returns four attacks with the other fields of base: for a list that the reader may have, for a list that only
// the admin may have, for an object, and for who the user is.
func listsGetAndWho(base attack, want hits) []attack {
	derive := func(name, target string, wantHitFor []string) attack {
		a := base
		a.name, a.target, a.wantHitFor = base.name+", "+name, target, wantHitFor
		return a
	}
	return []attack{
		derive("list", podsOfA, want.list), derive("list all", pods, want.listAll), derive("get", podOfA, nil), askingWhoAmI(base),
	}
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

// certificateOnly are harmless requests of all kinds by users with a certificate alone.
func certificateOnly() []attack {
	return withUsers(goodCerts,
		attack{name: "list all", target: pods, wantHitFor: []string{adminCert}},
		attack{name: "list", target: podsOfA, wantHitFor: podReaderCerts},
		attack{name: "list another namespace", target: podsOfB, wantHitFor: []string{adminCert}},
		attack{name: "list of one name", target: mapOpen, wantHitFor: []string{adminCert, namedCert}},
		attack{name: "list of all, of which named may read one", target: configMapsOfA, wantHitFor: []string{adminCert}},
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
	ofPodReaders := []string{withToken(readerCert, admin), withToken(readerCert, stranger), withToken(adminCert, reader)}
	out := listsGetAndWho(
		attack{name: "two users", users: append(ofPodReaders, withToken(nobodyCert, admin))},
		hits{list: ofPodReaders, listAll: []string{withToken(adminCert, reader)}},
	)
	for _, lines := range []string{
		"Authorization:", "Authorization: Bearer", "Authorization: Basic YWRtaW46YWRtaW4=",
		"Authorization: Bearer {token:admin}\nAuthorization: Bearer {token:alice}", "Proxy-Authorization: Bearer {token:admin}",
		"Sec-WebSocket-Protocol: {bearer:admin}, x",
	} {
		out = append(out, listsGetAndWho(attack{
			name: lines, header: strings.Split(lines, "\n"), users: []string{readerCert}, noAuthorization: true,
		}, hits{list: []string{readerCert}})...)
	}
	return out
}

// badCertificates shows certificates that are invalid, and those of users whom listproxy cannot impersonate.
func badCertificates() []attack {
	out := listsGetAndWho(attack{name: "invalid", users: badCerts, verdict: refusedAlike}, hits{})
	for _, line := range []string{
		"Authorization: Basic YTph", "Authorization: Bearer ", "Impersonate-User: alice", "X-Remote-User: alice",
	} {
		out = append(out, attack{
			name: "invalid, and " + line, target: podsOfA, header: []string{line}, users: badCerts,
			verdict: refusedAlike, noAuthorization: true,
		})
	}
	for _, bad := range badCerts { // with a token, the request is the token's user's
		badWithToken := withToken(bad, reader)
		out = append(out, listsGetAndWho(
			attack{name: "invalid, and a token", users: []string{badWithToken, withToken(bad, stranger)}}, hits{list: []string{badWithToken}},
		)...)
	}
	return append(out, listsGetAndWho(attack{
		name: "cannot be impersonated", users: []string{anonymousCert, oddCert, ungroupedCert},
		verdict: refused, wantStatus: http.StatusForbidden,
	}, hits{})...)
}
