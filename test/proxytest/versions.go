package proxytest

import "fmt"

// VersionOf is what /version says of an API server.
func VersionOf(gitVersion string) string { return fmt.Sprintf(`{"gitVersion":%q}`, gitVersion) }
