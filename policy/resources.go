package policy

// CachedByDefault tells whether lists of a resource are kept in memory unless the
// configuration says otherwise. Group is empty for the core group.
//
// Secrets are left out because holding them makes the proxy's memory as precious
// as etcd's. Events are left out because they have no watch cache upstream:
// their watches get no bookmarks, so a quiet feed cannot prove how far it knows,
// and several of them can change in one revision.
func CachedByDefault(group, resource string) bool {
	switch {
	case group == "" && resource == "secrets":
		return false
	case (group == "" || group == "events.k8s.io") && resource == "events":
		return false
	}
	return true
}
