# A static program in an image of its own: docker build -t dynosweep . &&
# docker run --rm -v "$PWD:/work" dynosweep sweep spec.yaml
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /dynosweep ./cmd/dynosweep

FROM scratch
COPY --from=build /dynosweep /dynosweep
COPY LICENSE NOTICE /
WORKDIR /work
ENTRYPOINT ["/dynosweep"]
