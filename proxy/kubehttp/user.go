package kubehttp

import "k8s.io/apiserver/pkg/authentication/user"

// UserSize returns the length of all strings of a user, and a little for each.
func UserSize(u user.Info) int {
	const each = 1
	size := len(u.GetName()) + len(u.GetUID())
	for _, group := range u.GetGroups() {
		size += each + len(group)
	}
	for key, values := range u.GetExtra() {
		size += each + len(key)
		for _, value := range values {
			size += each + len(value)
		}
	}
	return size
}
