package controlplane

// The names of [Users].
const (
	Admin     = "admin"
	Alice     = "alice"
	Carol     = "carol"
	Nobody    = "nobody"
	Feed      = "feed"
	CertUser  = "certuser"
	Anonymous = "anonymous"
)

// FeedUserName is the name by which the API server knows [Feed], listproxy's own user.
const FeedUserName = "listproxy"

// The namespaces that exist from the start, besides those of Kubernetes.
const (
	TeamA = "team-a"
	TeamB = "team-b"
)

const (
	groupMasters = "system:masters"
	// groupUnauthenticated keeps its members out of system:authenticated, so that they have no right to discovery or to a
	// SelfSubjectAccessReview.
	groupUnauthenticated = "system:unauthenticated"
)

// A User is someone with a kubeconfig.
type User struct {
	// Name is what the functions of this package call the user.
	Name string
	// Rights says in a phrase what the user may do.
	Rights string

	login  string // the name that the API server sees
	groups []string
	token  bool // the user has a token
	cert   bool // the user has a client certificate
}

// Users returns all users, with what each may do. The kubeconfig of a user holds the token if there is one, or else the
// client certificate if there is one.
func Users() []User {
	return []User{
		{
			Name: Admin, Rights: "everything (group system:masters); token and client certificate",
			login: Admin, groups: []string{groupMasters}, token: true, cert: true,
		},
		{Name: Alice, Rights: "list, get and watch pods in namespace team-a", login: Alice, token: true},
		{Name: Carol, Rights: "what every authenticated user may: discovery, and reviews of her own rights", login: Carol, token: true},
		{Name: Nobody, Rights: "nothing, not even a review of their own rights", login: Nobody, groups: []string{groupUnauthenticated}, token: true},
		{Name: Feed, Rights: "list and watch every resource (the proxy's own user, named " + FeedUserName + ")", login: FeedUserName, token: true},
		{Name: CertUser, Rights: "what every authenticated user may; client certificate, no token", login: CertUser, cert: true},
		{Name: Anonymous, Rights: "what system:anonymous may; no credentials"},
	}
}
