# The image of listproxy: from nothing (scratch), one static program, its licence, and the CAs that public servers
# are verified with, which are those of the image that it is built in (for OpenTelemetry's exporters, and for kubeconfigs that
# name no CA; the API server's CA comes with the service account). Run as nobody.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=v0.1.0 -t listproxy .
#
# What it is built in is named by tag, so that Go's fixes come by themselves; who wants the same one each time
# gives its digest: --build-arg BUILDER=golang:1.26@sha256:…
ARG BUILDER=golang:1.26
# The compiler runs on the builder's own platform, and compiles for the image's.
FROM --platform=$BUILDPLATFORM $BUILDER AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY policy policy
COPY proxy proxy
COPY snapshot snapshot
COPY telemetry telemetry
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -ldflags "-s -w -X main.release=${VERSION}" -o /listproxy ./cmd/listproxy

FROM scratch
LABEL org.opencontainers.image.source=https://github.com/listproxy/listproxy org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY LICENSE /LICENSE
COPY --from=build /listproxy /listproxy
# A number, so that kubelets can tell that it is not root.
USER 65532:65532
EXPOSE 8443 8444 8081
ENTRYPOINT ["/listproxy"]
