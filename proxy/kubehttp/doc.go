// Package kubehttp has what the packages that handle HTTP for the Kubernetes API share:
//
//   - facts about requests: what kube-apiserver reads from them ([Request]), their listener, and words for the log
//   - listproxy's own answers, which look like kube-apiserver's, and the header that says where an answer came from
//   - clients that follow no redirects, and files that are read again ([ReloadFiles])
package kubehttp
