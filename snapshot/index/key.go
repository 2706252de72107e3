package index

// A key is "namespace/name", or "name" for an object of a cluster-scoped resource. Neither part can contain a slash.

// Scope is the part of a resource that a request asks for: one namespace, or everything if Namespace is empty.
type Scope struct {
	Namespace string
}

// Prefix returns the prefix of all keys in the scope.
func (s Scope) Prefix() string { return JoinKey(s.Namespace, "") }

// End returns the lowest key that is above all keys of the scope; "" if the scope has no end.
func (s Scope) End() string {
	if s.Namespace == "" {
		return ""
	}
	return s.Namespace + "0" // '0' follows '/' in ASCII
}

// JoinKey returns the key of an object. The namespace of a cluster-scoped object is "".
func JoinKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
